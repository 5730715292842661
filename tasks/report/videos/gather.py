"""The content of the page of a run that describes videos, gathered from the database, the manifest and the cache."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import Text, cast, func, literal, select

from infra.database.connect import database_errors
from reelabel.errors import ConfigurationError
from reelabel.sources.object_info import redact_uri
from reelabel.text import pluralize
from tasks.database.scope import Scope
from tasks.database.tables import DESCRIPTION, DESCRIPTION_CHUNK, FAILURE
from tasks.report.findings import group_failures
from tasks.report.glance import summarize
from tasks.report.manifest import jobs_of_rows
from tasks.report.videos.strip import read_strip

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection, Engine, RowMapping

    from reelabel.frames.cache import FrameCache
    from reelabel.sources.object_store import ObjectStore
    from tasks.domain import DescribeSpec, Job
    from tasks.report.findings import FailureGroup
    from tasks.report.glance import Glance
    from tasks.report.videos.strip import StripFrame

# Videos that the page lists, of which the first have their frames; and chunks of all of them together.
MAX_VIDEOS = 1_000
_MAX_STRIPS = 40
_MAX_CHUNKS = 20_000
_READS_AT_ONCE = 8
_SEED = 1
_FREQUENT = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownPart:
    """A chunk of a video.

    Attributes:
        tags: The best tags with their scores, best first.
        caption: The best caption; None without frames.
    """

    start_s: float
    end_s: float
    tags: tuple[tuple[str, float], ...]
    caption: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownVideo:
    """A described video.

    Attributes:
        video: Its URI, without credentials; None if the manifest no longer has it.
        tags: The best tags with their scores, best first.
        caption: The best caption and its score; None without frames or captions.
        scenes: Start and end of each scene, and its number of shots.
        scene_note: What the method of finding scenes has to say; empty otherwise.
        note: What limits its frames; empty if nothing does.
        parts: Its chunks; empty if they do not fit.
        strip: Some of its frames; empty if they are not on the page.
        no_strip: Why not; empty otherwise.
    """

    job_id: str
    video: str | None
    duration_s: float
    tags: tuple[tuple[str, float], ...]
    caption: tuple[str, float] | None
    scenes: tuple[tuple[float, float, int], ...]
    scene_changes: int
    scene_method: str
    scene_note: str
    note: str
    parts: tuple[ShownPart, ...] = ()
    strip: tuple[StripFrame, ...] = ()
    no_strip: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class VideosReport:
    """A run, and the current descriptions and failures of its dataset and spec.

    Attributes:
        described: Number of descriptions.
        failures: Number of failures.
        hours: Hours of video that are described.
        embedded: Frames that were embedded for them, in this run and earlier ones.
        frequent: The most frequent first tags, with their numbers of videos.
        spec: Options of the spec, by name.
        videos: Those on the page, named ones first.
        note: Why videos have no frames or URIs; empty if nothing is missing.
    """

    glance: Glance
    described: int
    failures: int
    hours: float
    frequent: tuple[tuple[str, int], ...]
    failure_groups: tuple[FailureGroup, ...]
    spec: dict[str, Any]
    videos: tuple[ShownVideo, ...]
    note: str
    made_at: datetime


def gather_videos(
    engine: Engine,
    objects: ObjectStore,
    run: RowMapping,
    spec: DescribeSpec,
    *,
    cache: FrameCache,
    job_ids: Sequence[str] = (),
) -> VideosReport:
    """Gather the content of the page, with the named jobs in any case.

    Raises:
        ConfigurationError: A named job has no description, or too many are named.
        TransientError: A service is unavailable.
    """
    if len(set(job_ids)) > MAX_VIDEOS:
        raise ConfigurationError(f"A report lists at most {MAX_VIDEOS:,} videos, but more were named; name fewer.")
    scope = Scope.of(run)
    with database_errors(), engine.connect() as connection:
        rows = _rows(connection, scope, job_ids)
        if missing := sorted(set(job_ids) - rows.keys()):
            raise ConfigurationError(
                f"{pluralize(len(missing), 'job')} without a description in dataset {scope.dataset}, such as "
                f"{redact_uri(missing[0])}; to list them all: `reelabel audit --list FILE`."
            )
        parts = _parts(connection, scope, rows)
        described, duration_s = connection.execute(
            select(func.count(), func.coalesce(func.sum(DESCRIPTION.c.duration_s), 0)).where(scope.matches(DESCRIPTION))
        ).one()
        report = VideosReport(
            glance=summarize(run, model=spec.model.name),
            described=described,
            failures=scope.count(connection, FAILURE),
            hours=float(duration_s) / 3600,
            frequent=_frequent(connection, scope),
            failure_groups=group_failures(connection, scope),
            spec=spec.model_dump(mode="json", exclude={"model", "job", "tags", "captions"}),
            videos=tuple(_shown(row, parts.get(job_id, ())) for job_id, row in rows.items()),
            note="",
            made_at=datetime.now(UTC),
        )
    jobs, note = jobs_of_rows(run["manifest_uri"], objects, rows, questions=False)
    return replace(report, videos=_with_strips(report.videos, rows, jobs, spec, cache), note=note)


def _rows(connection: Connection, scope: Scope, named: Sequence[str]) -> dict[str, RowMapping]:
    """Return the descriptions to show: the named ones, then a uniform sample, the same each time."""
    sampled = func.hashtextextended(cast(DESCRIPTION.c.job_id, Text), literal(_SEED))
    query = (
        select(DESCRIPTION)
        .where(scope.matches(DESCRIPTION))
        .order_by(DESCRIPTION.c.job_id.in_(list(named)).desc(), sampled, DESCRIPTION.c.job_id)
        .limit(MAX_VIDEOS)
    )
    return {row["job_id"]: row for row in connection.execute(query).mappings()}


def _parts(connection: Connection, scope: Scope, rows: Mapping[str, RowMapping]) -> dict[str, tuple[ShownPart, ...]]:
    """Read the chunks of the first videos, of as many as fit."""
    wanted, chunks = [], 0
    for job_id, row in rows.items():
        chunks += row["chunks"]
        if chunks <= _MAX_CHUNKS:
            wanted.append(job_id)
    table = DESCRIPTION_CHUNK
    query = (
        select(table).where(scope.matches(table), table.c.job_id.in_(wanted)).order_by(table.c.job_id, table.c.chunk)
    )
    found: dict[str, list[ShownPart]] = {}
    for row in connection.execute(query).mappings():
        part = ShownPart(start_s=row["start_s"], end_s=row["end_s"], tags=_scored(row["tags"]), caption=row["caption"])
        found.setdefault(row["job_id"], []).append(part)
    return {job_id: tuple(each) for job_id, each in found.items()}


def _frequent(connection: Connection, scope: Scope) -> tuple[tuple[str, int], ...]:
    first = DESCRIPTION.c.tags[0]["text"].astext
    query = (
        select(first, func.count())
        .where(scope.matches(DESCRIPTION), first.is_not(None))
        .group_by(first)
        .order_by(func.count().desc(), first)
        .limit(_FREQUENT)
    )
    return tuple((text, count) for text, count in connection.execute(query))


def _scored(tags: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, float], ...]:
    return tuple((tag["text"], round(tag["score"], 4)) for tag in tags)


def _shown(row: RowMapping, parts: tuple[ShownPart, ...]) -> ShownVideo:
    caption = row["caption"]
    return ShownVideo(
        job_id=row["job_id"],
        video=None,
        duration_s=row["duration_s"],
        tags=_scored(row["tags"]),
        caption=None if caption is None else (caption, round(row["caption_score"], 4)),
        scenes=tuple((each["start_s"], each["end_s"], each["shots"]) for each in row["scenes"]),
        scene_changes=row["scene_changes"],
        scene_method=row["scene_method"],
        scene_note=row["scene_note"],
        note=row["decode_note"] or "",
        parts=parts,
    )


def _with_strips(
    videos: tuple[ShownVideo, ...],
    rows: Mapping[str, RowMapping],
    jobs: Mapping[str, Job],
    spec: DescribeSpec,
    cache: FrameCache,
) -> tuple[ShownVideo, ...]:
    def fill(number: int, video: ShownVideo) -> ShownVideo:
        job = jobs.get(video.job_id)
        if job is None:
            return replace(video, no_strip="The manifest now has another video under this id, or none.")
        named = replace(video, video=redact_uri(job.video_uri))
        if number >= _MAX_STRIPS:
            return replace(named, no_strip=NO_ROOM)
        strip = read_strip(cache, job, rows[video.job_id], spec)
        return replace(named, strip=strip, no_strip="" if strip else "Its frames are not in the cache.")

    with ThreadPoolExecutor(_READS_AT_ONCE) as readers:
        return tuple(readers.map(fill, range(len(videos)), videos))


NO_ROOM = "Its frames did not fit into this report."
