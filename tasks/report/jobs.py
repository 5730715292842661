"""Selects the jobs that a page shows individually, and loads their data."""

from __future__ import annotations

from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import polars as pl
from sqlalchemy import Text, cast, func, literal, select

from infra.errors import ManifestError
from reelabel.errors import ObjectError
from reelabel.frames.cache_key import FrameIdentity
from reelabel.sampling.options import dense_pass, with_sampler
from reelabel.segment import WHOLE, Segment
from reelabel.sources.object_info import redact_uri
from tasks.database.tables import CHUNK, FAILURE, RESULT
from tasks.domain.job import split_fingerprint
from tasks.domain.passes import sampling_of_pass, sampling_shown
from tasks.manifest.digests import rows_to_jobs
from tasks.manifest.table import open_jobs
from tasks.model.prompts.prompt import build_question
from tasks.report.frames import THUMBNAIL_PX, make_strip
from tasks.report.render import NO_ROOM

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from sqlalchemy import ColumnElement, Connection, RowMapping, Select, Table

    from reelabel.frames.cache import FrameCache
    from reelabel.sources.object_store import ObjectStore
    from tasks.database.scope import Scope
    from tasks.domain import Job, RunSpec
    from tasks.report.frames import Strip

    # Possible identities of frame files by what is shown: None for a job's one video, numbers for its media or chunks.
    _Possible: TypeAlias = dict[int | None, Sequence[FrameIdentity]]

MAX_JOBS = 300
_EACH = 40
_PER_CODE = 8
_SEED = 1
_READS_AT_ONCE = 8
_MAX_CHOICES = 26
_MAX_CHUNKS = 3_000
# Total time of a job: its video and its answer.
SPENT_MS: ColumnElement[float] = (
    RESULT.c.fetch_ms
    + RESULT.c.decode_ms
    + RESULT.c.embed_ms
    + RESULT.c.cache_write_ms
    + RESULT.c.cache_read_ms
    + RESULT.c.preprocess_ms
    + RESULT.c.inference_ms
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCard:
    row: RowMapping  # a result or a failure
    job: Job | None  # None if the manifest no longer has it, or has another question under its id
    selected_because: Sequence[str]
    before: str | None  # its label in the run it is compared with; None if unchanged, or if there is none
    choices: Sequence[tuple[str, float]] | None  # with their probabilities; None if the job failed or has changed
    question: str | None  # None if the manifest now has another one
    system_prompt: str | None
    strip: Strip | None  # the frames of its one video; None if they are not included
    no_strip: str  # why they are not included
    media: Sequence[Mapping[str, Any]]  # of several videos and images: `kind`, `uri`, `strip` and `no_strip`, in order
    chunks: Sequence[Mapping[str, Any]]  # rows with their `strip`; empty if it was not cut, or has too many

    @property
    def job_id(self) -> str:
        return str(self.row["job_id"])

    @property
    def video(self) -> str | None:
        """URI of the video, or of the first of several, without credentials."""
        return redact_uri(self.job.video_uri) if self.job else None

    @property
    def start_s(self) -> float | None:
        return self.job.start_s if self.job else None

    @property
    def end_s(self) -> float | None:
        return self.job.end_s if self.job else None

    @property
    def strips(self) -> list[Strip]:
        """All its frames, in order."""
        every = (self.strip, *(each["strip"] for each in (*self.media, *self.chunks)))
        return [strip for strip in every if strip]


class Sources(NamedTuple):
    """Sources of the data of jobs, in addition to their rows."""

    manifest_uri: str
    spec: RunSpec | None  # of their answers; None if this version cannot read it
    objects: ObjectStore
    cache: FrameCache
    thumbnail_px: int = THUMBNAIL_PX  # maximum longer side of their frames


def select_jobs(
    connection: Connection, scope: Scope, *, named: Sequence[str], changed: Iterable[str]
) -> dict[str, list[str]]:
    """Select up to MAX_JOBS jobs, deterministically, including those that are named or whose label has changed.

    Return the reasons for selecting each job, by job id, in descending priority for including frames.
    """
    selected: dict[str, list[str]] = {}
    labels, job_id = _labels(scope), RESULT.c.job_id
    wrong = labels.where(RESULT.c.label != RESULT.c.answer).order_by(RESULT.c.margin.desc(), job_id)
    # A uniform sample, which a seeded hash of the ids makes reproducible.
    sample = labels.order_by(func.hashtextextended(cast(job_id, Text), literal(_SEED)), job_id)
    groups: list[tuple[str, Iterable[str]]] = [
        ("requested", named),
        ("failed", _ids(connection, _failed(scope))),
        ("changed label", list(changed)[:_EACH]),
        ("wrong", _ids(connection, wrong.limit(_EACH))),
        ("low margin", least_certain(connection, scope, limit=_EACH)),
        ("slow", _ids(connection, labels.order_by(SPENT_MS.desc(), job_id).limit(_EACH // 2))),
        ("sample", _ids(connection, sample.limit(MAX_JOBS))),
    ]
    for reason, job_ids in groups:
        for each in job_ids:
            if each in selected or len(selected) < MAX_JOBS:
                selected.setdefault(each, []).append(reason)
    return {
        each: reasons[:-1] if len(reasons) > 1 and reasons[-1] == "sample" else reasons
        for each, reasons in selected.items()
    }


def least_certain(connection: Connection, scope: Scope, *, limit: int) -> list[str]:
    """Return the ids of the labelled jobs with the lowest margins, without copies."""
    labels = _labels(scope).where(RESULT.c.label.is_not(None))
    return _ids(connection, labels.order_by(RESULT.c.margin, RESULT.c.job_id).limit(limit))


def _ids(connection: Connection, query: Select[str]) -> list[str]:
    return list(connection.execute(query).scalars())


def _labels(scope: Scope) -> Select[str]:
    return select(RESULT.c.job_id).where(scope.matches(RESULT), RESULT.c.copied_from.is_(None))


def _failed(scope: Scope) -> Select[str]:
    rank = func.row_number().over(partition_by=FAILURE.c.code, order_by=FAILURE.c.job_id).label("rank")
    ranked = select(FAILURE.c.job_id, rank).where(scope.matches(FAILURE)).subquery()
    return (
        select(ranked.c.job_id).where(ranked.c.rank <= _PER_CODE).order_by(ranked.c.rank, ranked.c.job_id).limit(_EACH)
    )


def load_jobs(
    connection: Connection,
    scope: Scope,
    sources: Sources,
    *,
    selected: Mapping[str, Sequence[str]],
    before: Mapping[str, str],
    named_chunks: Mapping[str, AbstractSet[int]] = MappingProxyType({}),
    max_videos: int,
) -> tuple[list[JobCard], str]:
    """Load the data of some jobs, with the frames of at most `max_videos`; also return why questions are missing.

    `selected` are the reasons for selecting each job, by its id; the first jobs have frames, and ids without a row are
    ignored. `before` are the earlier labels of jobs whose label has changed, and `named_chunks` the numbers of chunks
    whose frames the user requested.
    """
    queries = (select(each).where(scope.matches(each), each.c.job_id.in_(list(selected))) for each in (FAILURE, RESULT))
    rows = {row["job_id"]: row for query in queries for row in connection.execute(query).mappings()}
    jobs, note = jobs_of_rows(sources.manifest_uri, sources.objects, rows)
    found = [job_id for job_id in selected if job_id in rows]
    chunks = chunk_rows(connection, scope, CHUNK, {job_id: rows[job_id] for job_id in found}, max_chunks=_MAX_CHUNKS)
    possible = {
        job_id: _possible_frames(
            jobs.get(job_id), rows[job_id], chunks.get(job_id, ()), named_chunks.get(job_id, frozenset()), sources.spec
        )
        for job_id in found
    }
    wanted = dict.fromkeys(each for job_id in found for group in possible[job_id].values() for each in group)
    wanted_first = list(wanted)[:max_videos]
    with ThreadPoolExecutor(_READS_AT_ONCE) as readers:
        strips = dict(zip(wanted_first, readers.map(partial(_strip, sources), wanted_first), strict=True))
    cards = [
        _card(
            rows[job_id],
            jobs.get(job_id),
            sources.spec,
            chunks=chunks.get(job_id, ()),
            frames={place: _found(group, strips) for place, group in possible[job_id].items()},
            selected_because=selected[job_id],
            before=before.get(job_id),
        )
        for job_id in found
    ]
    return cards, note


def jobs_of_rows(
    manifest_uri: str, objects: ObjectStore, rows: Mapping[str, RowMapping], *, questions: bool = True
) -> tuple[dict[str, Job], str]:
    """Read the jobs of rows by id, except those that have changed in the manifest; also return why none can be read."""
    if not rows:
        return {}, ""
    try:
        only = pl.Series("job_id", list(rows), dtype=pl.String)
        with open_jobs(manifest_uri, objects, only=only, keep_going=True, questions=questions) as table:
            jobs = [job for part in table.parts() for job in rows_to_jobs(part)]
    except (ManifestError, ObjectError) as error:
        return {}, f"{'Questions' if questions else 'Videos'} and frames are unavailable: {error.message}"
    return {job.job_id: job for job in jobs if job.digest == rows[job.job_id]["job_digest"]}, ""


def chunk_rows(
    connection: Connection,
    scope: Scope,
    table: Table,
    rows: Mapping[str, RowMapping],
    *,
    columns: Iterable[str] | None = None,
    max_chunks: int,
) -> dict[str, list[RowMapping]]:
    """Read columns of the chunks of jobs, in order, by job id: those of the first jobs, up to a limit in all."""
    wanted, chunks = [], 0
    for job_id, row in rows.items():
        chunks += row["chunks"] or 0
        if row["chunks"] and chunks <= max_chunks:
            wanted.append(job_id)
    found: dict[str, list[RowMapping]] = defaultdict(list)
    if not wanted:
        return found
    selected = table.c if columns is None else [table.c[name] for name in columns]
    query = select(*selected).where(scope.matches(table), table.c.job_id.in_(wanted))
    for chunk in connection.execute(query.order_by(table.c.job_id, table.c.chunk)).mappings():
        found[chunk["job_id"]].append(chunk)
    return found


def _card(
    row: RowMapping,
    job: Job | None,
    spec: RunSpec | None,
    *,
    chunks: Sequence[RowMapping],
    frames: Mapping[int | None, tuple[Strip | None, str]],
    selected_because: Sequence[str],
    before: str | None,
) -> JobCard:
    question = build_question(job, spec) if job and spec else None
    probabilities = row.get("probabilities")
    choices = zip(job.choices, probabilities, strict=False) if job and probabilities else None
    no_frames = (None, _missing_reason(is_known=False, was_read=False))
    strip, no_strip = frames.get(None, no_frames)
    media = [] if not job or not job.media else job.media
    found = [frames.get(number, no_frames) for number in range(len(media))]
    return JobCard(
        row=row,
        job=job,
        selected_because=selected_because,
        before=before,
        choices=list(choices)[:_MAX_CHOICES] if choices else None,
        question=question.text if question else job.prompt if job else None,
        system_prompt=question.system_prompt if question else None,
        strip=strip,
        no_strip=no_strip if job else "The manifest now has another question under this id.",
        media=[
            {"kind": medium.kind, "uri": redact_uri(medium.uri), "strip": strip, "no_strip": why}
            for medium, (strip, why) in zip(media, found, strict=True)
        ],
        chunks=[
            {**chunk, "start_s": chunk["start_s"] or 0.0, "strip": frames.get(chunk["chunk"], no_frames)[0]}
            for chunk in chunks
        ],
    )


def _possible_frames(
    job: Job | None, row: RowMapping, chunks: Sequence[RowMapping], named: AbstractSet[int], spec: RunSpec | None
) -> _Possible:
    if not job or not spec:
        return {}
    if row["chunks"]:
        # The named chunks, and the first one with the job's label.
        alike = [chunk for chunk in chunks if chunk["label"] == row.get("label")] or chunks
        return {
            chunk["chunk"]: _identities(job, spec, chunk, Segment.of(chunk["start_s"], chunk["end_s"]))
            for chunk in chunks
            if chunk["chunk"] in named or chunk in alike[:1]
        }
    if job.media:
        return dict(enumerate(_identities_of_media(job, row, spec)))
    return {None: _identities(job, spec, row, Segment.of(job.start_s, job.end_s))}


def _identities(job: Job, spec: RunSpec, row: RowMapping, segment: Segment) -> list[FrameIdentity]:
    """Return the possible identities of the frame file of a job's or chunk's row; none if the source is unknown."""
    if row["source_fingerprint"] is None:
        return []
    sampler, chosen_ms = row.get("sampler") or spec.sampling.sampler, row.get("chosen_ms") or ""
    sampling = sampling_shown(spec.sampling, sampler=sampler, chosen_ms=chosen_ms)
    return [
        FrameIdentity(
            source_uri=job.video_uri, fingerprint=row["source_fingerprint"], sampling=sampling, segment=segment
        )
    ]


def _identities_of_media(job: Job, row: RowMapping, spec: RunSpec) -> Iterator[list[FrameIdentity]]:
    """Yield the possible identities of the frame file of each medium of a job."""
    assert job.media
    known = zip(job.media, split_fingerprint(row["source_fingerprint"], len(job.media)), strict=True)
    usual = spec.sampling
    # The row names keyframes if any video was sampled by them; with `auto`, other videos may differ.
    names = dict.fromkeys((row.get("sampler") or usual.sampler, *(("auto",) if usual.sampler == "auto" else ())))
    by_video = [dense_pass(usual) if name == "auto" else with_sampler(usual, name) for name in names]
    for medium, fingerprint in known:
        possible = [sampling_of_pass(usual, "image")] if medium.kind == "image" else by_video
        segment = WHOLE if medium.kind == "image" else Segment.of(job.start_s, job.end_s)
        yield [
            FrameIdentity(source_uri=medium.uri, fingerprint=fingerprint, sampling=sampling, segment=segment)
            for sampling in possible
            if fingerprint
        ]


def _strip(sources: Sources, identity: FrameIdentity) -> Strip | None:
    frames = sources.cache.find(identity)
    return make_strip(frames, long_side_px=sources.thumbnail_px) if frames else None


def _found(possible: Sequence[FrameIdentity], strips: Mapping[FrameIdentity, Strip | None]) -> tuple[Strip | None, str]:
    """Return the frames of the first identity with a file, or why there is none."""
    strip = next((strip for each in possible if (strip := strips.get(each))), None)
    was_read = any(each in strips for each in possible)
    return strip, "" if strip else _missing_reason(is_known=bool(possible), was_read=was_read)


def _missing_reason(*, is_known: bool, was_read: bool) -> str:
    if not is_known:
        return "No frames were extracted."
    return "Its frames are no longer in the cache." if was_read else NO_ROOM
