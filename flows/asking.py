"""Inference on a shard: ask the model about views as they are extracted."""

from __future__ import annotations

import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, islice
from typing import TYPE_CHECKING

from flows.arriving import Arriving
from flows.extracting import extract_views
from infra.errors import FrameFileError, JobError, ObjectMissingError, VideoError
from tasks.domain import Answer, Failure, JobResult, Part, Shard, Stage, TimeLedger, View
from tasks.domain.cascade import is_unsure, settle
from tasks.frames.packets import with_pixels
from tasks.model.orders import ask_in_every_order
from tasks.model.prompt import question_of
from tasks.model.questions import Batch, Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from concurrent.futures import Executor, Future

    from tasks.domain import Job, RunSpec
    from tasks.frames.cache import FrameCache
    from tasks.frames.prepare import PreparedVideo, Preparer
    from tasks.model.asker import Asker
    from tasks.results.writer import ShardWriter
    from tasks.video.limits import Limits
    from tasks.video.pool import DecodePool

_READS_AT_ONCE = 4
# Every group has a fixed cost: if the engine outpaces extraction, a short wait merges small groups.
_MIN_GROUP = 8
_MAX_GROUP_WAIT_S = 0.1
# While one group of a shard is being answered, the next is being read and sent.
GROUPS_AT_ONCE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Answering:
    """What inference needs besides the shard.

    Attributes:
        pool: Decodes frame files that hold packets.
        limits: Limits on decoding one of them.
        writer: Writes the results of shards.
        batch_bytes: Most frame bytes in one group of a shard.
        preparer: Prepares the dense views of escalated jobs.
        ask_again_below: Margin below which jobs are escalated; None escalates none.
        ledger: Wall-clock profile.
        gpus: GPUs that the engine holds.
    """

    spec: RunSpec
    cache: FrameCache
    pool: DecodePool
    limits: Limits
    engine: Asker
    writer: ShardWriter
    batch_bytes: int
    preparer: Preparer
    ask_again_below: float | None = None
    ledger: TimeLedger = field(default_factory=TimeLedger)
    gpus: int = 0

    def lap(self) -> dict[str, float]:
        """Return milliseconds by part since the last lap, splitting the engine's share as it reports."""
        times = self.engine.times
        made_of_ms = {Part.ANSWER: times.busy_ms, Part.PREPROCESS: times.waited_ms, Part.RESTART: times.restart_ms}
        self.ledger.split(Part.ANSWER, made_of_ms)
        return self.ledger.lap()


@dataclass(slots=True, kw_only=True)
class Endings:
    """Results of a shard so far, and milliseconds spent reading each frame file."""

    index: int
    failures: list[Failure] = field(default_factory=list)
    began_s: float = field(default_factory=time.time)
    results: list[JobResult] = field(default_factory=list)
    read_ms: dict[View, float] = field(default_factory=dict)
    videos: list[PreparedVideo] = field(default_factory=list)


def ask(arriving: Arriving, by_view: Mapping[View, Sequence[Job]], answering: Answering, endings: Endings) -> None:
    """Ask the questions of jobs about their views, as these become ready."""
    under_way: deque[Future[None]] = deque()
    with ThreadPoolExecutor(GROUPS_AT_ONCE) as askers, ThreadPoolExecutor(_READS_AT_ONCE) as readers:
        for group in _groups(arriving, answering):
            prepared = _take_faults(group, by_view, endings)
            under_way.append(askers.submit(_ask_group, prepared, answering, endings, readers))
            if len(under_way) == GROUPS_AT_ONCE:  # the next group takes whatever is ready by then
                under_way.popleft().result()
        for future in under_way:
            future.result()


def _take_faults(
    group: Mapping[View, PreparedVideo | VideoError], by_view: Mapping[View, Sequence[Job]], endings: Endings
) -> dict[View, tuple[PreparedVideo, Sequence[Job]]]:
    """Return the prepared videos of a group with their jobs; jobs of faulty videos end as failures."""
    prepared: dict[View, tuple[PreparedVideo, Sequence[Job]]] = {}
    for view, outcome in group.items():
        if isinstance(outcome, VideoError):
            endings.failures += [_failure(job, outcome, endings.index, outcome.fingerprint) for job in by_view[view]]
        else:
            endings.videos.append(outcome)
            prepared[view] = (outcome, by_view[view])
    return prepared


def ask_again(answering: Answering, endings: Endings, *, below: float) -> None:
    """Ask jobs whose margin is below `below` again, with the dense sampler."""
    unsure = [result.job for result in endings.results if is_unsure(result, below=below)]
    views: dict[View, list[Job]] = {}
    for job in unsure:
        views.setdefault(View.of(job, answering.spec.sampling)._replace(shown="lossless"), []).append(job)
    again = Endings(index=endings.index)
    if unsure:
        shard, arriving = Shard(index=endings.index, jobs=tuple(unsure)), Arriving()
        with answering.ledger.doing(Part.DECODE), ThreadPoolExecutor(_READS_AT_ONCE) as workers:
            arriving.end(extract_views(shard, views, answering.preparer, workers=workers, arriving=arriving))
        ask(arriving, views, answering, again)
    endings.read_ms |= again.read_ms
    endings.videos += again.videos
    endings_again: list[JobResult | Failure] = [*again.results, *again.failures]
    second = {ending.job.job_id: ending for ending in endings_again}
    endings.results = [settle(first, second.get(first.job.job_id), below=below) for first in endings.results]


def _groups(arriving: Arriving, answering: Answering) -> Iterator[dict[View, PreparedVideo | VideoError]]:
    """Group ready views so that their frames fit into one batch; while one is answered, the next one grows."""
    taken = 0
    while True:
        with answering.ledger.doing(Part.DECODE):
            ready = arriving.after(taken, few=_MIN_GROUP, patience_s=_MAX_GROUP_WAIT_S)
        if not ready:
            return
        sums_bytes = accumulate(0 if isinstance(each, VideoError) else each.frame_bytes for each in ready.values())
        fitting = sum(sum_bytes <= answering.batch_bytes for sum_bytes in sums_bytes)
        group = dict(islice(ready.items(), max(1, fitting)))
        taken += len(group)
        yield group


def _ask_group(
    group: Mapping[View, tuple[PreparedVideo, Sequence[Job]]],
    answering: Answering,
    endings: Endings,
    readers: Executor,
) -> None:
    files, faults = _read_group({view: video for view, (video, _) in group.items()}, answering, endings, readers)
    for view, fault in faults.items():
        video, jobs = group[view]
        endings.failures += [_failure(job, fault, endings.index, video.fingerprint) for job in jobs]
    asked = [(view, job) for view, (_, jobs) in group.items() if view.name in files for job in jobs]
    questions = tuple(question_of(job, answering.spec, video_id=view.name) for view, job in asked)
    with answering.ledger.doing(Part.ANSWER):
        batch = Batch(frame_files=files, questions=questions)
        replies = ask_in_every_order(answering.engine.ask, batch) if asked else []
    for (view, job), reply in zip(asked, replies, strict=True):
        video, _ = group[view]
        if isinstance(reply, Answer):
            result = _result(job, video, reply, cache_read_ms=endings.read_ms[view], shard_index=endings.index)
            endings.results.append(replace(result, routed_by=_routed_by(view, video, answering.spec)))
        else:
            endings.failures.append(_failure(job, reply, endings.index, video.fingerprint))


def _read_group(
    group: dict[View, PreparedVideo],
    answering: Answering,
    endings: Endings,
    readers: Executor,
) -> tuple[dict[str, bytes], dict[View, JobError]]:
    """Read frame files concurrently; return them by view name, and the errors of the others."""
    files: dict[str, bytes] = {}
    faults: dict[View, JobError] = {}
    with answering.ledger.doing(Part.CACHE_READ):
        outcomes = readers.map(partial(_read, answering), group.values())
        for view, (outcome, read_ms) in zip(group, outcomes, strict=True):
            endings.read_ms[view] = read_ms
            if isinstance(outcome, JobError):
                faults[view] = outcome
            else:
                files[view.name] = outcome
    return files, faults


def _read(answering: Answering, video: PreparedVideo) -> tuple[bytes | JobError, float]:
    """Read one frame file; return it or its error, and milliseconds."""
    started = time.perf_counter()
    try:
        outcome: bytes | JobError = _read_frame_file(video, answering)
    except JobError as error:
        outcome = error
    return outcome, (time.perf_counter() - started) * 1e3


def _read_frame_file(video: PreparedVideo, answering: Answering) -> bytes:
    """Read and verify a frame file, and decode it if it holds packets.

    Raises:
        FrameFileError: It is damaged or missing.
        VideoError: It holds packets that can no longer be decoded.
    """
    cache = answering.cache
    try:
        return with_pixels(cache.read(video.key), answering.pool, answering.limits)
    except (FrameFileError, ObjectMissingError) as error:
        raise FrameFileError(f"{cache.uri_of(video.key)}: {error.message} Run again to create it anew.") from None


def _routed_by(view: View, video: PreparedVideo, spec: RunSpec) -> str:
    """Name what made `auto` choose the dense sampler; empty if nothing did."""
    if spec.sampling.sampler != "auto" or video.sampler == "keyframes":
        return ""
    return "task" if view.shown == "lossless" else "verdict"


def _result(job: Job, video: PreparedVideo, answer: Answer, *, cache_read_ms: float, shard_index: int) -> JobResult:
    return JobResult(
        job=job,
        source_fingerprint=video.fingerprint,
        answer=answer,
        keyframes_in_file=video.keyframes_in_file,
        frames_used=video.frames_used,
        fetch_ms=video.fetch_ms,
        decode_ms=video.decode_ms,
        cache_write_ms=video.cache_write_ms,
        cache_read_ms=cache_read_ms,
        shard_index=shard_index,
        decode_method=video.decode_method,
        decode_note=video.decode_note,
        sampler=video.sampler,
        frames_decoded=video.frames_decoded,
        bytes_fetched=video.bytes_fetched,
        longest_gap_s=video.longest_gap_s,
        keyframe_cover=video.keyframe_cover,
        verdict=video.verdict,
    )


def _failure(job: Job, cause: JobError | Refusal, shard_index: int, fingerprint: str | None) -> Failure:
    return Failure(
        job=job,
        stage=Stage(cause.stage),
        code=cause.code,
        message=cause.message,
        shard_index=shard_index,
        source_fingerprint=fingerprint,
    )
