"""Replay of a session: its queries as jobs, each with exactly the frames that the query saw.

The frames are stored as a lossless video, which is read like any other: FFV1 in Matroska, every frame a keyframe, at
its time to the millisecond. Queries with the same frames share one.
"""

from __future__ import annotations

import io
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import av
import polars as pl

from reelabel.digest import json_digest
from reelabel.errors import ConfigurationError
from reelabel.text import pluralize
from reelabel_engine.live_items import FOOTAGE
from tasks.live.record.saved import SavedSession, SessionFrames
from tasks.manifest.schema import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from reelabel.sources.object_store import ObjectStore
    from tasks.frame_cache.sealed_files import SealedFiles
    from tasks.live.record.frame_part import KeptFrame

_MS = Fraction(1, 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionJobs:
    manifest_uri: str
    jobs: int
    left_out: Mapping[str, int]

    def __str__(self) -> str:
        reasons = "".join(f" {pluralize(count, 'question')} left out: {why}." for why, count in self.left_out.items())
        return f"{pluralize(self.jobs, 'question')} of the session to replay.{reasons}"


def write_jobs(
    session: SavedSession, files: SealedFiles, *, max_pixels: int | None = None, max_video_pixels: int | None = None
) -> SessionJobs:
    """Write the videos and the manifest of a session's queries to the store; unchanged videos stay.

    Queries with frames of more pixels, each or together, are left out, because the model would be shown smaller ones.

    Raises:
        ConfigurationError: No query can be replayed, or a frame file is gone or altered.
        StoreUnavailableError: The store does not respond.
    """
    objects, folder = files.objects, files.uri_of(f"live/{session.row['session_id']}")
    frames = SessionFrames(session, files)
    left_out: Counter[str] = Counter()
    rows: list[dict[str, Any]] = []
    written: dict[str, str] = {}
    for query in session.queries:
        shown = [] if _unfit(query) else frames.seen_by(query)
        if why := _unfit(query) or _unlike(query, shown, max_pixels=max_pixels, max_video_pixels=max_video_pixels):
            left_out[why] += 1
            continue
        digest = json_digest([frame.number for frame in shown])
        if digest not in written:
            written[digest] = f"{folder}/{digest}{FOOTAGE}"
            _write(objects, written[digest], encode_footage(shown))
        rows.append(
            {
                "job_id": f"query-{query['query']}",
                "video_uri": written[digest],
                "prompt": query["question"],
                "choices": list(query["choices"]),
                "task": "live",
            }
        )
    if not rows:
        reasons = "; ".join(f"{pluralize(count, 'question')}: {why}" for why, count in left_out.items())
        raise ConfigurationError(f"No question of the session can be replayed: {reasons or 'it has none'}.")
    manifest = io.BytesIO()
    pl.DataFrame(rows, schema={name: COLUMNS[name] for name in rows[0]}).write_parquet(manifest)
    objects.replace(f"{folder}/queries.parquet", manifest.getvalue())
    return SessionJobs(manifest_uri=f"{folder}/queries.parquet", jobs=len(rows), left_out=left_out)


def _write(objects: ObjectStore, uri: str, data: bytes) -> None:
    """Write a video, unless it is there: its labels belong to its version, so only an altered one is replaced."""
    if not objects.write_new(uri, data) and objects.read(uri) != data:
        objects.replace(uri, data)


def encode_footage(frames: Sequence[KeptFrame]) -> bytes:
    """Encode frames of one size as a video; deterministic."""
    height, width, _ = frames[0].image.shape
    written = io.BytesIO()
    with av.open(written, "w", format="matroska", options={"fflags": "+bitexact"}) as container:
        stream = container.add_stream("ffv1", rate=_rate(frames), options={"g": "1", "flags": "+bitexact"})
        stream.width, stream.height, stream.pix_fmt = width, height, "bgr0"
        stream.time_base = stream.codec_context.time_base = _MS
        for kept in frames:
            frame = av.VideoFrame.from_ndarray(kept.image, format="rgb24").reformat(format="bgr0")
            frame.pts, frame.time_base = round(kept.time_s * 1000), _MS
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return written.getvalue()


def _unfit(query: Mapping[str, Any]) -> str:
    if query["choices"] is None:
        return "it has no choices"
    if query["audio_s"]:
        return "it had audio in its prompt, which is not stored"
    return "" if query["frames"] else "it saw no frame"


def _unlike(
    query: Mapping[str, Any], shown: Sequence[KeptFrame], *, max_pixels: int | None, max_video_pixels: int | None
) -> str:
    """Return why the model would not be shown what a query saw; empty if it would."""
    numbers = query["frames"]
    if len(shown) < len(set(numbers)):
        return "some of its frames were never written to the store"
    shapes = {frame.image.shape for frame in shown}
    if len(shapes) > 1 or len(set(numbers)) < len(numbers):
        return "its frames have several sizes"
    height, width, _ = shapes.pop()
    if max_pixels and height * width > max_pixels:
        return f"its frames have more than {max_pixels:,} pixels, to which they would be scaled down"
    if max_video_pixels and height * width * (len(shown) + len(shown) % 2) > max_video_pixels:
        return f"its frames together have more than {max_video_pixels:,} pixels, which the model takes of a video"
    return ""


def _rate(frames: Sequence[KeptFrame]) -> Fraction:
    """Return the average frame rate, which is never 0: PyAV would write 24 for it."""
    span_s = frames[-1].time_s - frames[0].time_s
    if span_s <= 0:
        return Fraction(1)
    return Fraction((len(frames) - 1) / span_s).limit_denominator(1000) or Fraction(1, 1000)
