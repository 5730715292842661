"""Inference on a shard: answer its jobs as their views are extracted."""

from __future__ import annotations

import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, islice
from typing import TYPE_CHECKING

from flows.shard.extract import ViewStream, extract_views, log_remade, prepare_view
from flows.shard.metrics import record_videos
from reelabel.errors import FrameFileError, JobError, ObjectMissingError, VideoError
from reelabel.frames.packets import with_pixels
from tasks.domain import Answer, Failure, JobResult, RunPhase, Shard, Stage, View, WallClockProfile
from tasks.domain.outcome import merge_answers, needs_escalation
from tasks.model.prompts.prompt import answer_permuted, build_question
from tasks.model.protocol import Batch, QuestionFailure

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from concurrent.futures import Executor, Future

    from reelabel.frames.cache import FrameCache
    from reelabel.frames.extractor import ExtractedVideo, FrameExtractor
    from reelabel.limits import Limits
    from reelabel.pool.decode_pool import DecodePool
    from tasks.domain import Job, RunSpec
    from tasks.model.backend import InferenceBackend
    from tasks.model.protocol import Question, Reply
    from tasks.results.write import ShardWriter

_MAX_CONCURRENT_READS = 4
# Every group has a fixed cost: if the engine outpaces extraction, a short wait merges small groups.
_MIN_GROUP = 8
_MAX_GROUP_WAIT_S = 0.1
# While one group of a shard is being answered, the next is being read and sent.
MAX_CONCURRENT_GROUPS = 2
# What a group has in flight at a time, however many orders its questions have, and however long they and their videos
# are. Tokens are estimated: one for each byte of text, and for each 28 by 28 pixels.
MAX_PROMPTS = 256
MAX_TOKENS = 1024**2
_VIDEO_BYTES_PER_TOKEN = 3 * 28 * 28


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceContext:
    """What inference needs besides the shard.

    Attributes:
        pool: Decodes frame files that contain packets.
        limits: Limits for decoding one of them.
        writer: Writes the results of shards.
        batch_bytes: Most frame bytes in one group of a shard.
        extractor: Prepares the dense views of escalated jobs.
        escalate_below: Margin below which jobs are escalated; None escalates none.
        ledger: Wall-clock profile.
        gpus: GPUs that the engine holds.
    """

    spec: RunSpec
    cache: FrameCache
    pool: DecodePool
    limits: Limits
    backend: InferenceBackend
    writer: ShardWriter
    batch_bytes: int
    extractor: FrameExtractor
    escalate_below: float | None = None
    ledger: WallClockProfile = field(default_factory=WallClockProfile)
    gpus: int = 0

    def lap(self) -> dict[str, float]:
        """Return milliseconds by part since the last lap, with the engine's share split as it reports."""
        times = self.backend.times
        split_ms = {
            RunPhase.ANSWER: times.busy_ms,
            RunPhase.PREPROCESS: times.starved_ms,
            RunPhase.RESTART: times.restart_ms,
        }
        self.ledger.split(RunPhase.ANSWER, split_ms)
        return self.ledger.lap()


@dataclass(slots=True, kw_only=True)
class ShardOutcome:
    """Results of a shard so far, and milliseconds spent reading each frame file."""

    index: int
    failures: list[Failure] = field(default_factory=list)
    began_s: float = field(default_factory=time.time)
    results: list[JobResult] = field(default_factory=list)
    read_ms: dict[View, float] = field(default_factory=dict)
    videos: list[ExtractedVideo] = field(default_factory=list)


def infer_views(
    stream: ViewStream, by_view: Mapping[View, Sequence[Job]], context: InferenceContext, shard_outcome: ShardOutcome
) -> None:
    """Answer jobs as their views become ready."""
    in_progress: deque[Future[None]] = deque()
    with ThreadPoolExecutor(MAX_CONCURRENT_GROUPS) as threads, ThreadPoolExecutor(_MAX_CONCURRENT_READS) as readers:
        for group in _groups(stream, context):
            prepared = _split_faulty(group, by_view, shard_outcome)
            in_progress.append(threads.submit(_infer_group, prepared, context, shard_outcome, readers))
            if len(in_progress) == MAX_CONCURRENT_GROUPS:  # the next group takes whatever is ready by then
                in_progress.popleft().result()
        for future in in_progress:
            future.result()


def _split_faulty(
    group: Mapping[View, ExtractedVideo | VideoError],
    by_view: Mapping[View, Sequence[Job]],
    shard_outcome: ShardOutcome,
) -> dict[View, tuple[ExtractedVideo, Sequence[Job]]]:
    """Return the extracted videos of a group with their jobs; record failures for the jobs of faulty videos."""
    prepared: dict[View, tuple[ExtractedVideo, Sequence[Job]]] = {}
    for view, outcome in group.items():
        if isinstance(outcome, VideoError):
            shard_outcome.failures += [
                _failure(job, outcome, shard_outcome.index, outcome.fingerprint) for job in by_view[view]
            ]
        else:
            shard_outcome.videos.append(outcome)
            prepared[view] = (outcome, by_view[view])
    return prepared


def escalate(context: InferenceContext, shard_outcome: ShardOutcome, *, below: float) -> None:
    """Answer jobs whose margin is below `below` again, with the dense sampler."""
    uncertain = [result.job for result in shard_outcome.results if needs_escalation(result, below=below)]
    views: dict[View, list[Job]] = {}
    for job in uncertain:
        views.setdefault(View.of(job, context.spec.sampling)._replace(shown="dense"), []).append(job)
    second_outcome = ShardOutcome(index=shard_outcome.index)
    if uncertain:
        shard, stream = Shard(index=shard_outcome.index, jobs=tuple(uncertain)), ViewStream()
        with context.ledger.doing(RunPhase.DECODE), ThreadPoolExecutor(_MAX_CONCURRENT_READS) as workers:
            stream.end(extract_views(shard, views, context.extractor, workers=workers, stream=stream))
        infer_views(stream, views, context, second_outcome)
    shard_outcome.read_ms |= second_outcome.read_ms
    shard_outcome.videos += second_outcome.videos
    answered: list[JobResult | Failure] = [*second_outcome.results, *second_outcome.failures]
    second = {each.job.job_id: each for each in answered}
    shard_outcome.results = [
        merge_answers(first, second.get(first.job.job_id), below=below) for first in shard_outcome.results
    ]


def _groups(stream: ViewStream, context: InferenceContext) -> Iterator[dict[View, ExtractedVideo | VideoError]]:
    """Group ready views so that their frames fit into one batch; while one is answered, the next one grows."""
    consumed = 0
    while True:
        with context.ledger.doing(RunPhase.DECODE):
            ready = stream.after(consumed, min_count=_MIN_GROUP, max_wait_s=_MAX_GROUP_WAIT_S)
        if not ready:
            return
        sums_bytes = accumulate(0 if isinstance(each, VideoError) else each.frame_bytes for each in ready.values())
        fitting = sum(sum_bytes <= context.batch_bytes for sum_bytes in sums_bytes)
        group = dict(islice(ready.items(), max(1, fitting)))
        consumed += len(group)
        yield group


def _infer_group(
    group: Mapping[View, tuple[ExtractedVideo, Sequence[Job]]],
    context: InferenceContext,
    shard_outcome: ShardOutcome,
    readers: Executor,
) -> None:
    read = _read_group({view: video for view, (video, _) in group.items()}, context, shard_outcome, readers)
    for view, (video, fault) in read.items():
        if isinstance(fault, JobError):
            fingerprint = fault.fingerprint if isinstance(fault, VideoError) else video.provenance.fingerprint
            shard_outcome.failures += [_failure(job, fault, shard_outcome.index, fingerprint) for job in group[view][1]]
    files = {view.name: data for view, (_, data) in read.items() if isinstance(data, bytes)}
    usable = {view: (read[view][0], jobs) for view, (_, jobs) in group.items() if view.name in files}
    for asked in _batches(usable, context.spec):
        batch = Batch(frame_files=files, questions=()).only(tuple(question for _, _, question in asked))
        with context.ledger.doing(RunPhase.ANSWER):
            replies = answer_permuted(context.backend.answer, batch)
        for (view, job, _), reply in zip(asked, replies, strict=True):
            _record_reply(reply, job, view, read[view][0], context, shard_outcome)


def _batches(
    group: Mapping[View, tuple[ExtractedVideo, Sequence[Job]]], spec: RunSpec
) -> Iterator[list[tuple[View, Job, Question]]]:
    """Yield the questions of a group in batches of bounded size; a larger question is a batch by itself."""
    batch: list[tuple[View, Job, Question]] = []
    prompts = tokens = 0
    for view, (video, jobs) in group.items():
        for job in jobs:
            question = build_question(job, spec, video_id=view.name)
            orders = 1 + len(question.others)
            text_bytes = len(f"{question.text}{question.system_prompt}".encode())
            more_tokens = orders * (text_bytes + video.frame_bytes // _VIDEO_BYTES_PER_TOKEN)
            if batch and (prompts + orders > MAX_PROMPTS or tokens + more_tokens > MAX_TOKENS):
                yield batch
                batch, prompts, tokens = [], 0, 0
            batch.append((view, job, question))
            prompts += orders
            tokens += more_tokens
    if batch:
        yield batch


def _record_reply(
    reply: Reply, job: Job, view: View, video: ExtractedVideo, context: InferenceContext, shard_outcome: ShardOutcome
) -> None:
    if not isinstance(reply, Answer):
        shard_outcome.failures.append(_failure(job, reply, shard_outcome.index, video.provenance.fingerprint))
        return
    shard_outcome.results.append(
        JobResult(
            job=job,
            answer=reply,
            provenance=replace(video.provenance, cache_read_ms=shard_outcome.read_ms[view]),
            shard_index=shard_outcome.index,
            routed_by=_routed_by(view, video, context.spec),
        )
    )


def _read_group(
    group: dict[View, ExtractedVideo],
    context: InferenceContext,
    shard_outcome: ShardOutcome,
    readers: Executor,
) -> dict[View, tuple[ExtractedVideo, bytes | JobError]]:
    """Read frame files concurrently; return each or its error, and its video, which may have been extracted again."""
    read: dict[View, tuple[ExtractedVideo, bytes | JobError]] = {}
    with context.ledger.doing(RunPhase.CACHE_READ):
        outcomes = readers.map(partial(_read, context), group, group.values())
        for view, (video, outcome, read_ms) in zip(group, outcomes, strict=True):
            shard_outcome.read_ms[view] = read_ms
            if video is not group[view]:
                shard_outcome.videos.append(video)
            read[view] = video, outcome
    return read


def _read(
    context: InferenceContext, view: View, video: ExtractedVideo
) -> tuple[ExtractedVideo, bytes | JobError, float]:
    """Read one frame file; return its video, the file or its error, and milliseconds."""
    started = time.perf_counter()
    try:
        with suppress(FrameFileError, ObjectMissingError):
            return video, _read_frame_file(video, context), (time.perf_counter() - started) * 1e3
        video = _extract_again(view, context)
        outcome: bytes | JobError = _read_frame_file(video, context)
    except (FrameFileError, ObjectMissingError) as error:
        uri = context.cache.uri_of(video.identity.key)
        outcome = FrameFileError(f"The frame file {uri} was made again, but cannot be used either: {error.message}")
    except VideoError as error:
        outcome = error
    return video, outcome, (time.perf_counter() - started) * 1e3


def _read_frame_file(video: ExtractedVideo, context: InferenceContext) -> bytes:
    """Read and verify a frame file, and decode it if it contains packets.

    Raises:
        ObjectMissingError: It is missing.
        FrameFileError: It must not be used.
        VideoError: It contains packets that can no longer be decoded.
    """
    file = context.cache.read(video.identity)
    try:
        return with_pixels(file, context.pool, context.limits)
    except VideoError as error:
        error.fingerprint = video.provenance.fingerprint
        raise


def _extract_again(view: View, context: InferenceContext) -> ExtractedVideo:
    """Extract a video whose frame file was removed, altered or replaced since its extraction."""
    video = prepare_view(context.extractor, view)
    record_videos([video])
    log_remade([video])
    return video


def _routed_by(view: View, video: ExtractedVideo, spec: RunSpec) -> str:
    """Return why `auto` chose the dense sampler, `task` or `coverage`; empty if it did not."""
    if spec.sampling.sampler != "auto" or video.provenance.sampler == "keyframes":
        return ""
    return "task" if view.shown == "dense" else "coverage"


def _failure(job: Job, cause: JobError | QuestionFailure, shard_index: int, fingerprint: str | None) -> Failure:
    return Failure(
        job=job,
        stage=Stage(cause.stage),
        code=cause.code,
        message=cause.message,
        shard_index=shard_index,
        source_fingerprint=fingerprint,
    )
