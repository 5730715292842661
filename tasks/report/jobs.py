"""Jobs shown individually in a report: outcome, question, and the frames that the model saw."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from reelabel.errors import FrameFileError
from reelabel.frames.cache_key import FrameIdentity
from reelabel.sampling.passes import dense_pass, sampling_of_pass, with_sampler
from reelabel.sampling.registry import samplers
from reelabel.segment import WHOLE, Segment
from reelabel.sources.object_info import redact_uri
from tasks.database.tables import FAILURE, RESULT
from tasks.domain.media import split_fingerprint
from tasks.model.prompts.prompt import build_question
from tasks.report.chunks import chunks_with_frames, read_chunk_rows, show_chunk
from tasks.report.manifest import identity_of_frames, jobs_of_rows
from tasks.report.strip import make_strip

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from sqlalchemy import Connection, RowMapping

    from reelabel.frames.cache import FrameCache
    from reelabel.sources.object_store import ObjectStore
    from tasks.database.scope import Scope
    from tasks.domain import Job, RunSpec
    from tasks.report.chunks import ShownChunk
    from tasks.report.strip import Strip

_READS_AT_ONCE = 8
_MAX_CHOICES = 26
_TIMES = ("fetch_ms", "decode_ms", "embed_ms", "cache_write_ms", "cache_read_ms", "preprocess_ms", "inference_ms")
_COUNTS = (
    *("prompt_tokens", "cached_tokens", "frames_used", "frames_decoded", "shard_index"),
    *("chunks", "chunks_answered"),
)
_TEXTS = (
    "label",
    "answer",
    "code",
    "stage",
    "message",
    "task",
    "subtask",
    "decode_method",
    "decode_note",
    "sampler",
    "coverage",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownMedium:
    """One of several videos and images that a job shows.

    Attributes:
        kind: `video` or `image`.
        uri: Its URI, without credentials.
        strip: Index in `ShownJobs.strips`; None if its frames are not included.
        no_strip: Why they are not included; empty otherwise.
    """

    kind: str
    uri: str
    strip: int | None = None
    no_strip: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownJob:
    """One job in a report.

    Attributes:
        reasons: Why it was chosen.
        facts: Non-empty columns of its row.
        choices: Choices with their probabilities; None if the job failed, or the manifest no longer has them.
        before: Its label in the run it is compared with; None if that is the same, or there is none.
        question: The question; None if the manifest now has another one.
        video: URI of the video, without credentials; of several, the first.
        strip: Index in `ShownJobs.strips`; None if the frames are not included.
        no_strip: Why they are not included; empty otherwise.
        others: Indices of the frames that other samplers chose of the same video, as far as the cache has them.
        chunks: Its chunks; empty if it was not cut, or if they do not fit into the report.
        media: Everything that it shows, in order, with frames of their own; empty if that is one video.
    """

    job_id: str
    reasons: tuple[str, ...]
    facts: dict[str, Any]
    choices: tuple[tuple[str, float], ...] | None
    before: str | None
    question: str | None
    system_prompt: str | None
    video: str | None
    start_s: float | None
    end_s: float | None
    strip: int | None
    no_strip: str
    others: tuple[int, ...]
    chunks: tuple[ShownChunk, ...] = ()
    media: tuple[ShownMedium, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownJobs:
    """Jobs in descending priority, and the frames of their videos without duplicates."""

    jobs: tuple[ShownJob, ...]
    strips: tuple[Strip, ...]
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Sources of information about jobs besides their rows.

    Attributes:
        manifest_uri: URI of their manifest.
        spec: Their spec; None if this version cannot read it.
        native_sampler: Name of the sampler that the model was trained with; empty if unknown.
        objects: Store of the manifest.
        cache: Cache of the frames.
    """

    manifest_uri: str
    spec: RunSpec | None
    native_sampler: str
    objects: ObjectStore
    cache: FrameCache


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frames:
    """What the frame files of one job are asked for by.

    Attributes:
        whole: That of its video; None if it was cut, or shows several, or it is unknown.
        media: If it shows several: for each of them, all that may be its; empty if unknown.
        chunks: Those of its chunks whose frames are shown, by number; None if unknown.
    """

    whole: FrameIdentity | None
    media: tuple[tuple[FrameIdentity, ...], ...]
    chunks: dict[int, FrameIdentity | None]

    def known(self) -> Iterator[FrameIdentity]:
        """Yield all that are known."""
        yield from filter(None, (self.whole, *chain.from_iterable(self.media), *self.chunks.values()))


def read_shown(
    connection: Connection,
    scope: Scope,
    sources: Sources,
    *,
    reasons: Mapping[str, Sequence[str]],
    before: Mapping[str, str],
    named_chunks: Mapping[str, AbstractSet[int]] = MappingProxyType({}),
    max_videos: int,
) -> ShownJobs:
    """Read everything that a report shows about some jobs, with the frames of at most `max_videos`.

    `reasons` has the reasons for choosing each job, by its id; ids without a row are ignored. `before` has the earlier
    labels of those whose label has changed, and `named_chunks` the numbers of the chunks whose frames the user wants.
    """
    rows = _rows(connection, scope, list(reasons))
    jobs, note = jobs_of_rows(sources.manifest_uri, sources.objects, rows)
    cut = read_chunk_rows(connection, scope, {job_id: rows[job_id] for job_id in reasons if job_id in rows})
    found = [
        replace(
            _shown(row, tuple(reasons[job_id]), before.get(job_id), jobs.get(job_id), sources.spec),
            chunks=tuple(map(show_chunk, cut.get(job_id, ()))),
        )
        for job_id in reasons
        if (row := rows.get(job_id))
    ]
    frames = {}
    for job_id, row in rows.items():
        chunks = chunks_with_frames(row, cut.get(job_id, ()), named_chunks.get(job_id, frozenset()))
        frames[job_id] = _frames_of(jobs.get(job_id), row, chunks, sources.spec)
    return _with_strips(found, frames, sources, max_videos=max_videos, note=note)


def _rows(connection: Connection, scope: Scope, job_ids: list[str]) -> dict[str, RowMapping]:
    queries = (select(table).where(scope.matches(table), table.c.job_id.in_(job_ids)) for table in (FAILURE, RESULT))
    return {row["job_id"]: row for query in queries for row in connection.execute(query).mappings()}


def _shown(
    row: RowMapping, reasons: tuple[str, ...], before: str | None, job: Job | None, spec: RunSpec | None
) -> ShownJob:
    names = (
        *_TEXTS,
        *_TIMES,
        *_COUNTS,
        "margin",
        "entropy_nats",
        "order_agreement",
        "attempts",
        "longest_gap_s",
        "keyframe_coverage",
    )
    question = build_question(job, spec) if job and spec else None
    probabilities = row.get("probabilities")
    choices = zip(job.choices, probabilities, strict=False) if job and probabilities else None
    return ShownJob(
        job_id=row["job_id"],
        reasons=reasons,
        facts={name: row[name] for name in names if row.get(name) not in (None, "")},
        choices=tuple(choices)[:_MAX_CHOICES] if choices else None,
        before=before,
        question=question.text if question else job.prompt if job else None,
        system_prompt=question.system_prompt if question else None,
        video=redact_uri(job.video_uri) if job else None,
        start_s=job.start_s if job else None,
        end_s=job.end_s if job else None,
        strip=None,
        no_strip="The manifest now has another question under this id." if not job else "",
        others=(),
        media=tuple(ShownMedium(kind=each.kind, uri=redact_uri(each.uri)) for each in (job and job.media) or ()),
    )


def _with_strips(
    found: Sequence[ShownJob],
    frames: Mapping[str, _Frames],
    sources: Sources,
    *,
    max_videos: int,
    note: str,
) -> ShownJobs:
    """Read the frames of the videos of the first jobs."""
    wanted = list(dict.fromkeys(each for job in found for each in frames[job.job_id].known()))[:max_videos]
    with ThreadPoolExecutor(_READS_AT_ONCE) as readers:
        read = dict(zip(wanted, readers.map(partial(_strip, sources.cache), wanted), strict=True))
        strips = {each: strip for each, strip in read.items() if strip}
        others = {each: other_samplers(each, sources.native_sampler) for each in strips}
        more = [each for each in dict.fromkeys(chain.from_iterable(others.values())) if each not in read]
        # After those that the model saw: they are the first to be dropped from a page that is too large.
        strips |= {
            each: strip
            for each, strip in zip(more, readers.map(partial(_strip, sources.cache), more), strict=True)
            if strip
        }
    number_of = {each: number for number, each in enumerate(strips)}

    def fill_chunk(chunk: ShownChunk, its: FrameIdentity | None) -> ShownChunk:
        return replace(chunk, strip=number_of.get(its)) if its else chunk

    def fill_medium(medium: ShownMedium, possible: Sequence[FrameIdentity]) -> ShownMedium:
        number = next((number_of[each] for each in possible if each in number_of), None)
        if number is not None:
            return replace(medium, strip=number)
        was_read = any(each in read for each in possible)
        return replace(medium, no_strip=_missing_reason(is_known=bool(possible), was_read=was_read))

    def fill(job: ShownJob) -> ShownJob:
        its = frames[job.job_id]
        media = its.media or ((),) * len(job.media)
        job = replace(
            job,
            chunks=tuple(fill_chunk(chunk, its.chunks.get(chunk.number)) for chunk in job.chunks),
            media=tuple(map(fill_medium, job.media, media)),
        )
        if its.whole in number_of:
            found_others = (number_of[each] for each in others.get(its.whole, ()) if each in number_of)
            return replace(job, strip=number_of[its.whole], others=tuple(found_others))
        reason = _missing_reason(is_known=its.whole is not None, was_read=its.whole in read)
        return replace(job, no_strip=job.no_strip or reason)

    return ShownJobs(jobs=tuple(map(fill, found)), strips=tuple(strips.values()), note=note)


def _frames_of(job: Job | None, row: RowMapping, chunks: Sequence[RowMapping], spec: RunSpec | None) -> _Frames:
    if not job or not spec:
        return _Frames(whole=None, media=(), chunks={})
    whole = Segment.of(job.start_s, job.end_s)
    return _Frames(
        whole=None if row["chunks"] or job.media else identity_of_frames(job, spec, row, whole),
        media=() if row["chunks"] or not job.media else tuple(_identities(job, row, spec)),
        chunks={
            chunk["chunk"]: identity_of_frames(job, spec, chunk, Segment.of(chunk["start_s"], chunk["end_s"]))
            for chunk in chunks
        },
    )


def _identities(job: Job, row: RowMapping, spec: RunSpec) -> Iterator[tuple[FrameIdentity, ...]]:
    """Yield what the frame file of each medium of a job may be asked for by."""
    assert job.media
    known = zip(job.media, split_fingerprint(row["source_fingerprint"], len(job.media)), strict=True)
    usual = spec.sampling
    # The row tells of keyframes if any video has them: where `auto` decides by the video, others may not.
    names = dict.fromkeys((row.get("sampler") or usual.sampler, *(("auto",) if usual.sampler == "auto" else ())))
    by_video = [dense_pass(usual) if name == "auto" else with_sampler(usual, name) for name in names]
    for medium, fingerprint in known:
        possible = [sampling_of_pass(usual, "image")] if medium.kind == "image" else by_video
        segment = WHOLE if medium.kind == "image" else Segment.of(job.start_s, job.end_s)
        yield tuple(
            FrameIdentity(source_uri=medium.uri, fingerprint=fingerprint, sampling=sampling, segment=segment)
            for sampling in possible
            if fingerprint
        )


def _strip(cache: FrameCache, identity: FrameIdentity) -> Strip | None:
    try:
        file = cache.find(identity)
        return make_strip(file) if file else None
    except FrameFileError:
        return None


def other_samplers(seen: FrameIdentity, native_sampler: str) -> list[FrameIdentity]:
    """Return what other samplers' frames of the same video would be asked for by, given the same options."""
    names = dict.fromkeys(name for name in ("keyframes", "uniform", native_sampler) if name in samplers())
    others = (replace(seen, sampling=with_sampler(seen.sampling, name)) for name in names)
    return [each for each in others if each.key != seen.key]


def _missing_reason(*, is_known: bool, was_read: bool) -> str:
    if not is_known:
        return "No frames were taken."
    return "Its frames are no longer in the cache." if was_read else "Its frames did not fit into this report."


def drop_strips(shown: ShownJobs, kept: int) -> ShownJobs:
    """Drop the frames of all but the first `kept` videos."""
    why = _missing_reason(is_known=True, was_read=False)
    return replace(shown, strips=shown.strips[:kept], jobs=tuple(_without(shown.jobs, kept, why)))


def _without(jobs: Iterable[ShownJob], kept: int, why: str) -> Iterable[ShownJob]:
    for job in jobs:
        chunks = (replace(each, strip=None) if (each.strip or 0) >= kept else each for each in job.chunks)
        media = (replace(each, strip=None, no_strip=why) if (each.strip or 0) >= kept else each for each in job.media)
        job = replace(job, chunks=tuple(chunks), media=tuple(media))  # noqa: PLW2901 - the same job with fewer frames
        if job.strip is not None and job.strip >= kept:
            yield replace(job, strip=None, no_strip=why, others=())
        else:
            yield replace(job, others=tuple(number for number in job.others if number < kept))
