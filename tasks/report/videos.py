"""The page of a run that describes videos."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlalchemy import Text, cast, func, literal, select

from infra.database.connect import database_errors
from reelabel.errors import ConfigurationError, FrameFileError
from reelabel.frames.cache_key import FrameIdentity
from reelabel.sampling.uniform import pick_evenly
from reelabel.segment import Segment
from reelabel.sources.object_info import redact_uri
from tasks.database.scope import Scope
from tasks.database.tables import DESCRIPTION, DESCRIPTION_CHUNK, FAILURE
from tasks.embedding.pieces import cut_pieces
from tasks.report.frames import thumbnail
from tasks.report.jobs import chunk_rows, jobs_of_rows
from tasks.report.render import NO_ROOM, Frames, render, render_page, with_cards
from tasks.report.run import group_failures, require_rows, run_overview

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection, Engine, RowMapping

    from reelabel.frames.cache import FrameCache
    from reelabel.result import Frames as SampledVideo
    from reelabel.sources.object_store import ObjectStore
    from tasks.domain import DescribeSpec, Job

# Videos on the page, videos with frames, and chunks of all videos together.
MAX_VIDEOS = 1_000
_MAX_STRIPS = 40
_MAX_CHUNKS = 20_000
_READS_AT_ONCE = 8
_SEED = 1
_FREQUENT = 15
_STRIP_FRAMES = 24
# For long videos: each file is read whole for a few of its frames.
_MAX_PIECES = 8
_TAG_ROWS = 8
_SECTIONS = (("overview", "Run"), ("failures", "Failures"), ("videos", "Videos"))


def load_videos(
    engine: Engine,
    objects: ObjectStore,
    run: RowMapping,
    spec: DescribeSpec,
    *,
    cache: FrameCache,
    job_ids: Sequence[str] = (),
) -> dict[str, Any]:
    """Load the data of a run's page, by its names in the template, always including the named jobs.

    Raises:
        ConfigurationError: A named job has no description, or too many are named.
        TransientError: A service is unavailable.
    """
    if len(set(job_ids)) > MAX_VIDEOS:
        raise ConfigurationError(f"A report lists at most {MAX_VIDEOS:,} videos, but more were named; name fewer.")
    scope = Scope.of(run)
    with database_errors(), engine.connect() as connection:
        rows = _rows(connection, scope, job_ids)
        require_rows(job_ids, rows.keys(), scope, "description")
        shown = ("job_id", "start_s", "end_s", "tags", "caption")
        chunks = chunk_rows(connection, scope, DESCRIPTION_CHUNK, rows, columns=shown, max_chunks=_MAX_CHUNKS)
        described, duration_s = connection.execute(
            select(func.count(), func.coalesce(func.sum(DESCRIPTION.c.duration_s), 0)).where(scope.matches(DESCRIPTION))
        ).one()
        report = {
            "overview": run_overview(run, model=spec.model.name),
            "described": described,
            "failures": scope.count(connection, FAILURE),
            "hours": float(duration_s) / 3600,
            "frequent": _frequent(connection, scope),
            "failure_groups": group_failures(connection, scope),
            "spec": spec.model_dump(mode="json", exclude={"model", "job", "tags", "captions"}),
            "made_at": datetime.now(UTC),
        }
    jobs, note = jobs_of_rows(run["manifest_uri"], objects, rows, questions=False)

    def video(number: int, row: RowMapping) -> dict[str, Any]:
        job = jobs.get(row["job_id"])
        strip: list[tuple[float, str]] = []
        if job is None:
            no_strip = "The manifest now has another video under this id, or none."
        elif number >= _MAX_STRIPS:
            no_strip = NO_ROOM
        else:
            strip = _strip(cache, job, row, spec)
            no_strip = "" if strip else "Its frames are not in the cache."
        uri = redact_uri(job.video_uri) if job else None
        return {**row, "uri": uri, "parts": chunks.get(row["job_id"], []), "strip": strip, "no_strip": no_strip}

    with ThreadPoolExecutor(_READS_AT_ONCE) as readers:
        return report | {"videos": list(readers.map(video, range(len(rows)), rows.values())), "note": note}


def _rows(connection: Connection, scope: Scope, named: Sequence[str]) -> dict[str, RowMapping]:
    """Return the descriptions to show: the named ones, then a deterministic uniform sample."""
    sampled = func.hashtextextended(cast(DESCRIPTION.c.job_id, Text), literal(_SEED))
    query = (
        select(DESCRIPTION)
        .where(scope.matches(DESCRIPTION))
        .order_by(DESCRIPTION.c.job_id.in_(list(named)).desc(), sampled, DESCRIPTION.c.job_id)
        .limit(MAX_VIDEOS)
    )
    return {row["job_id"]: row for row in connection.execute(query).mappings()}


def _frequent(connection: Connection, scope: Scope) -> list[tuple[str, int]]:
    """Return the most frequent first tags, with their numbers of videos."""
    first = DESCRIPTION.c.tags[0]["text"].astext
    query = (
        select(first, func.count())
        .where(scope.matches(DESCRIPTION), first.is_not(None))
        .group_by(first)
        .order_by(func.count().desc(), first)
        .limit(_FREQUENT)
    )
    return [(text, count) for text, count in connection.execute(query)]


def _strip(cache: FrameCache, job: Job, row: RowMapping, spec: DescribeSpec) -> list[tuple[float, str]]:
    """Read times and thumbnails of frames of a video, evenly spread and with the first of each scene, if cached."""
    if not row["frame_pixels"]:
        return []
    segment, pixels = Segment.of(job.start_s, job.end_s), row["frame_pixels"]
    pieces = list(cut_pieces(segment, row["duration_s"], spec, frame_pixels=pixels))
    kept = pick_evenly(len(pieces), min(len(pieces), _MAX_PIECES))
    starts_s = [scene["start_s"] for scene in row["scenes"]]
    frames: list[tuple[float, str]] = []
    for part, chunks in (pieces[number] for number in kept):
        identity = FrameIdentity(
            source_uri=job.video_uri,
            fingerprint=row["source_fingerprint"],
            sampling=spec.sampling(chunks=chunks, max_pixels=pixels),
            segment=part,
        )
        if found := cache.find(identity):
            with suppress(FrameFileError):
                frames += _frames(found, max(1, _STRIP_FRAMES // len(kept)), starts_s)
    return frames


def _frames(found: SampledVideo, count: int, starts_s: Sequence[float]) -> list[tuple[float, str]]:
    known = found.selection
    times_s = known.time_s - (known.first_ms or 0) / 1000
    even = pick_evenly(len(times_s), min(len(times_s), count))
    inside = [start_s for start_s in starts_s if times_s[0] <= start_s <= times_s[-1]]
    firsts = np.searchsorted(times_s, inside[:count]).tolist()
    aspect = known.pixel_aspect or 1.0
    return [
        (round(float(times_s[row]), 3), thumbnail(found.unique[row], pixel_aspect=aspect))
        for row in sorted({*even, *firsts})
    ]


def render_videos(report: Mapping[str, Any]) -> str:
    """Render the page of a run from the data of `load_videos`."""
    page = render_page(
        "videos.html.jinja",
        scripts=("report.js",),
        report=report,
        sections=_SECTIONS,
        shown=frozenset(),
        run_name=str(report["overview"]["run_id"])[:8],
    )
    frames = Frames("scenes.html.jinja")
    # Kept alive while the page is rendered: markers identify frames by their `id`.
    scenes = {video["job_id"]: _by_scene(video) for video in report["videos"] if video["strip"]}

    def draw(video: Mapping[str, Any], level: int) -> str:
        strip = scenes.get(video["job_id"])
        marker = frames.place(strip, video["job_id"]) if strip else None
        return render(
            "video.html.jinja",
            video=video,
            level=level,
            strip=marker,
            is_first=video is report["videos"][0],
            tags=_tags_over_time(video["parts"]),
        )

    return with_cards(
        page,
        report["videos"],
        draw,
        frames=frames,
        noun="described video",
        known=report["described"],
        why="a random sample with a fixed seed",
        note=report["note"],
    )


def _by_scene(video: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the scenes of a video with their frames, including scenes without a frame on the page."""
    scenes = video["scenes"] or [{"start_s": 0.0, "end_s": video["duration_s"]}]
    groups = [{"start_s": scene["start_s"], "end_s": scene["end_s"], "frames": []} for scene in scenes]
    starts_s = [scene["start_s"] for scene in scenes]
    for time_s, image in video["strip"]:
        groups[max(0, bisect_right(starts_s, time_s + 1e-3) - 1)]["frames"].append((time_s, image))
    return groups


def _tags_over_time(parts: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[tuple[float, float, float]]]]:
    """Return the strongest tags of a video with the start, end and score of each occurrence."""
    found: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    for part in parts:
        for tag in part["tags"]:
            found[tag["text"]].append((part["start_s"], part["end_s"], tag["score"]))
    # Cosines may be negative: more time must not make a tag weaker.
    least = min((score for cells in found.values() for _, _, score in cells if score < 0), default=0.0)
    weights = {
        text: sum((end_s - start_s) * (score - least) for start_s, end_s, score in found[text]) for text in found
    }
    return sorted(found.items(), key=lambda item: -weights[item[0]])[:_TAG_ROWS]
