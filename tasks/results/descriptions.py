"""The rows of described videos and of their chunks, written with the end of their shard."""

from __future__ import annotations

import json
from collections import defaultdict
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from sqlalchemy import func, select

from infra.database.connect import database_errors
from reelabel.sources.object_info import redact_uri
from tasks.database.tables import DESCRIPTION, DESCRIPTION_CHUNK
from tasks.database.temp_table import copy_rows
from tasks.description.cost import DescriptionCost
from tasks.domain.record import names_of, reader_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from uuid import UUID

    from sqlalchemy import Connection, Engine

    from tasks.description.described import DescribedVideo
    from tasks.description.pooling import ScoredText

_COLUMNS = (
    *("fence", "job_id", "job_digest", "task", "subtask", "video_uri", "source_fingerprint"),
    *("embedding_key", "dimensions", "shard_index"),
    *("duration_s", "tags", "caption", "caption_score", "caption_probability"),
    *("scenes", "scene_changes", "scene_method", "scene_note", "chunks", "frames_used", "frame_pixels"),
    *("decode_method", "decode_note", *names_of(DescriptionCost)),
)
_CHUNK_COLUMNS = (
    *("job_id", "chunk", "start_s", "end_s", "frames_used"),
    *("tags", "caption", "caption_score", "caption_probability", "changes"),
)
_job_values = attrgetter("job_id", "digest", "task", "subtask")
_cost_values = reader_of(DescriptionCost)


def write_descriptions(
    connection: Connection, videos: Sequence[tuple[DescribedVideo, int]], *, shared: dict[str, Any]
) -> None:
    """Write the rows of described videos, of which none may exist, in the transaction that ends their shards.

    Each video comes with the fence of its lease; `shared` has the values that are the same in all rows.
    """
    rows = ((fence, *_row(video)) for video, fence in videos)
    copy_rows(connection, DESCRIPTION, _COLUMNS, rows, shared=shared)
    chunks = (row for video, _ in videos for row in _chunk_rows(video))
    copy_rows(connection, DESCRIPTION_CHUNK, _CHUNK_COLUMNS, chunks, shared=shared)


def _row(video: DescribedVideo) -> tuple[Any, ...]:
    described = video.description
    scenes = [
        {"start_s": each.start_s, "end_s": each.end_s, "shots": each.shots, "begins": each.begins}
        for each in video.scenes
    ]
    return (
        *(*_job_values(video.job), redact_uri(video.job.video_uri), video.fingerprint),
        *(video.embedding_key, video.dimensions, video.shard_index, video.duration_s),
        *(_as_json(described.tags), *_caption(described.caption)),
        *(json.dumps(scenes), len(video.changes.changes), video.changes.method, video.changes.note),
        *(len(described.chunks), video.frames, video.frame_pixels, video.decode_method, video.decode_note),
        *_cost_values(video.cost),
    )


def _chunk_rows(video: DescribedVideo) -> Iterator[tuple[Any, ...]]:
    changes: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)
    for change in video.chunk_changes():
        changes[change.chunk].append(
            {"time_s": change.time_s, "score": change.score, "frame": change.frame, "kind": change.kind}
        )
    for each in video.description.chunks:
        chunk = each.chunk
        yield (
            *(video.job.job_id, chunk.index, chunk.start_s, chunk.end_s, each.frames),
            *(_as_json(each.tags), *_caption(each.caption), json.dumps(changes[chunk.index])),
        )


def _as_json(texts: Sequence[ScoredText]) -> str:
    return json.dumps([{"text": each.text, "score": each.score, "probability": each.probability} for each in texts])


def _caption(caption: ScoredText | None) -> tuple[str | None, float | None, float | None]:
    return (caption.text, caption.score, caption.probability) if caption else (None, None, None)


def count_frames(engine: Engine, run_id: UUID) -> tuple[int, int]:
    """Return the numbers of frames that a run has decoded and embedded, according to its rows."""
    sums = (func.coalesce(func.sum(DESCRIPTION.c[name]), 0) for name in ("frames_decoded", "frames_embedded"))
    with database_errors(), engine.connect() as connection:
        decoded, embedded = connection.execute(select(*sums).where(DESCRIPTION.c.run_id == run_id)).one()
    return int(decoded), int(embedded)
