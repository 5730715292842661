"""Inference on a shard: answer its jobs as their views are extracted."""

from __future__ import annotations

import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING

import msgspec

from flows.shard.context import ShardOutcome
from flows.shard.extract import FrameStream, extract_views, log_rewritten, prepare_view
from flows.shard.report import record_videos
from infra.logs import in_context
from reelabel.errors import FrameFileError, InternalError, JobError, ObjectMissingError, VideoError
from reelabel.frames.frame_file import with_pixels
from reelabel.sources.object_info import redact_uri
from reelabel.text import pluralize
from reelabel.unexpected import failing_alone
from reelabel.waiting import raise_if_abandoned
from reelabel_engine.errors import InferenceError
from reelabel_engine.protocol import Batch, Rejected
from tasks.domain import Answer, Failure, JobResult, RunPhase, Shard, View, group_by_views, views_of
from tasks.domain.job import join_fingerprints
from tasks.domain.outcome import merge_answers, merge_media, needs_escalation
from tasks.model.prompts.prompt import answer_permuted, build_question

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from concurrent.futures import Executor, Future

    from flows.shard.context import AnswerContext, Shown
    from reelabel_engine.protocol import Question
    from tasks.domain import Job, RunSpec
    from tasks.frame_cache.extractor import ExtractedVideo
    from tasks.model.backend import Reply

_MAX_CONCURRENT_READS = 4
# While one group of a shard is being answered, the next is being read and sent.
MAX_CONCURRENT_GROUPS = 2
# Limits of what a group has in flight, whatever the number of orders and the lengths of its questions and videos.
# Tokens are estimated: one per byte of text, and one per 28 by 28 pixels.
MAX_PROMPTS = 256
MAX_TOKENS = 1024**2
_VIDEO_BYTES_PER_TOKEN = 3 * 28 * 28
_MIN_GROUP = 8
_MAX_GROUP_WAIT_S = 0.1


def infer_views(
    stream: FrameStream, by_views: Mapping[Shown, Sequence[Job]], context: AnswerContext, shard_outcome: ShardOutcome
) -> None:
    """Answer jobs as their views become ready; jobs on several videos as soon as all of them are."""
    in_progress: deque[Future[None]] = deque()
    with ThreadPoolExecutor(MAX_CONCURRENT_GROUPS) as threads, ThreadPoolExecutor(_MAX_CONCURRENT_READS) as readers:
        for group in group_arrivals(stream, by_views, context, shard_outcome):
            prepared = _split_faulty(group, by_views, shard_outcome)
            in_progress.append(threads.submit(in_context(_infer_group), prepared, context, shard_outcome, readers))
            if len(in_progress) == MAX_CONCURRENT_GROUPS:  # the next group takes whatever is ready by then
                in_progress.popleft().result()
        for future in in_progress:
            future.result()


class _Arrivals:
    """Collects views as they arrive, and finds the jobs whose views are complete."""

    def __init__(self, shown: Iterable[Shown]) -> None:
        self.complete: deque[Shown] = deque()
        self._outcomes: dict[View, ExtractedVideo | JobError] = {}
        self._missing: dict[Shown, int] = {}
        self._waiting: dict[View, list[Shown]] = {}
        for views in shown:
            self._missing[views] = len(set(views))
            for view in set(views):
                self._waiting.setdefault(view, []).append(views)

    def add(self, ready: Mapping[View, ExtractedVideo | JobError]) -> None:
        self._outcomes |= ready
        for views in chain.from_iterable(self._waiting.pop(view, ()) for view in ready):
            self._missing[views] -= 1
            if not self._missing[views]:
                self.complete.append(views)

    def take(self, max_bytes: int) -> dict[Shown, list[ExtractedVideo | JobError]]:
        """Take complete sets of views, in order, as long as their frames fit into `max_bytes`; at least one."""
        group: dict[Shown, list[ExtractedVideo | JobError]] = {}
        seen: set[View] = set()
        size_bytes = 0
        while self.complete:
            views = self.complete[0]
            size_bytes += sum(map(self._bytes, {*views} - seen))
            if group and size_bytes > max_bytes:
                break
            seen |= {*views}
            group[self.complete.popleft()] = [self._outcomes[view] for view in views]
        return group

    def _bytes(self, view: View) -> int:
        outcome = self._outcomes[view]
        return 0 if isinstance(outcome, JobError) else outcome.frame_bytes


def group_arrivals(
    stream: FrameStream, shown: Iterable[Shown], context: AnswerContext, shard_outcome: ShardOutcome
) -> Iterator[dict[Shown, list[ExtractedVideo | JobError]]]:
    """Yield groups of complete sets of views that fit into one batch; while one is answered, the next one grows."""
    arrivals, consumed = _Arrivals(shown), 0
    while True:
        with context.profile.doing(RunPhase.DECODE):
            complete = len(arrivals.complete)
            ready = stream.after(
                consumed, min_count=_MIN_GROUP - complete, max_wait_s=_MAX_GROUP_WAIT_S, needs_one=not complete
            )
        if not ready and not complete:
            return
        new = islice(ready.values(), max(0, shard_outcome.arrived - consumed), None)
        consumed += len(ready)
        arrivals.add(ready)
        shard_outcome.arrived = max(shard_outcome.arrived, consumed)
        shard_outcome.videos += [outcome for outcome in new if not isinstance(outcome, JobError)]
        if group := arrivals.take(context.batch_bytes):
            yield group


def _split_faulty(
    group: Mapping[Shown, Sequence[ExtractedVideo | JobError]],
    by_views: Mapping[Shown, Sequence[Job]],
    shard_outcome: ShardOutcome,
) -> dict[Shown, tuple[Sequence[ExtractedVideo], Sequence[Job]]]:
    prepared: dict[Shown, tuple[Sequence[ExtractedVideo], Sequence[Job]]] = {}
    for views, outcomes in group.items():
        videos = [outcome for outcome in outcomes if not isinstance(outcome, JobError)]
        if len(videos) == len(outcomes):
            prepared[views] = (videos, by_views[views])
            continue
        found = [
            (outcome, outcome.fingerprint) if isinstance(outcome, JobError) else (None, outcome.provenance.fingerprint)
            for outcome in outcomes
        ]
        shard_outcome.failures += _fail(by_views[views], views, found, shard_outcome.index)
    return prepared


def ask_copies(copies: Mapping[str, Sequence[Job]], context: AnswerContext, shard_outcome: ShardOutcome) -> None:
    """Answer the jobs that cannot get the answer of another job, because that job failed or its video was replaced."""
    usable, ended = {each.job.job_id for each in shard_outcome.results if each.can_be_copied}, shard_outcome.ended
    jobs = [job for first, others in copies.items() if first not in usable for job in others if job.job_id not in ended]
    _extract_and_infer(group_by_views(jobs, context.spec.sampling), context, shard_outcome)


def _extract_and_infer(
    by_views: Mapping[Shown, Sequence[Job]], context: AnswerContext, shard_outcome: ShardOutcome
) -> None:
    """Answer jobs whose views were not extracted with those of their shard."""
    if not by_views:
        return
    jobs, views = tuple(chain.from_iterable(by_views.values())), tuple(dict.fromkeys(chain.from_iterable(by_views)))
    shard, stream = Shard(index=shard_outcome.index, jobs=jobs), FrameStream()
    with context.profile.doing(RunPhase.DECODE), ThreadPoolExecutor(_MAX_CONCURRENT_READS) as workers:
        stream.end(extract_views(shard, views, context.extractor, workers=workers, stream=stream))
    # The copy shares the lists of outcomes, but counts the views of its own stream.
    infer_views(stream, by_views, context, replace(shard_outcome, arrived=0))


def escalate(context: AnswerContext, shard_outcome: ShardOutcome) -> None:
    """Answer jobs whose margin is below `escalate_below` again, with the dense sampler; each once."""
    below = context.escalate_below
    if below is None:
        return
    second = shard_outcome.second = shard_outcome.second or ShardOutcome(index=shard_outcome.index)
    first: list[JobResult] = []
    by_views: dict[Shown, list[Job]] = {}
    asked_before = second.ended
    for result in shard_outcome.results:
        with _failing_alone(result.job, shard_outcome):
            is_due = result.first is None and result.job.job_id not in asked_before
            if is_due and needs_escalation(result, below=below):
                by_views.setdefault(views_of(result.job, context.spec.sampling, dense=True), []).append(result.job)
            first.append(result)
    shard_outcome.results = first
    _extract_and_infer(by_views, context, second)
    shard_outcome.read_ms |= second.read_ms
    shard_outcome.videos += second.videos
    shard_outcome.second = None
    answered: list[JobResult | Failure] = [*second.results, *second.failures]
    by_job = {each.job.job_id: each for each in answered}
    shard_outcome.results = []
    for result in first:
        if result.first is not None:  # of an earlier attempt
            shard_outcome.results.append(result)
            continue
        with _failing_alone(result.job, shard_outcome):
            shard_outcome.results.append(merge_answers(result, by_job.get(result.job.job_id), below=below))


def _infer_group(
    group: Mapping[Shown, tuple[Sequence[ExtractedVideo], Sequence[Job]]],
    context: AnswerContext,
    shard_outcome: ShardOutcome,
    readers: Executor,
) -> None:
    needed = {view: video for views, (videos, _) in group.items() for view, video in zip(views, videos, strict=True)}
    read = _read_group(needed, context, shard_outcome, readers)
    usable: dict[Shown, tuple[Sequence[ExtractedVideo], Sequence[Job]]] = {}
    for views, (_, jobs) in group.items():
        if all(isinstance(read[view][1], bytes) for view in views):
            usable[views] = ([read[view][0] for view in views], jobs)
        else:
            shard_outcome.failures += _fail(
                jobs, views, [_fault_of(*read[view]) for view in views], shard_outcome.index
            )
    files = {view.name: data for view, (_, data) in read.items() if isinstance(data, bytes)}
    for batch in _batches(usable, context.spec, shard_outcome):
        raise_if_abandoned()
        with context.profile.doing(RunPhase.ANSWER):
            replies = _ask([question for _, _, question in batch], files, context.ask)
        for (views, job, _), reply in zip(batch, replies, strict=True):
            with _failing_alone(job, shard_outcome):
                _record_reply(reply, job, views, usable[views][0], context, shard_outcome)


def _ask(questions: Sequence[Question], files: dict[str, bytes], ask: Callable[[Batch], list[Reply]]) -> list[Reply]:
    """Ask questions; if that ends in an unexpected error, ask each by itself, so that only one of them fails."""
    try:
        with failing_alone(f"Asking {pluralize(len(questions), 'question')}", stage=InferenceError.stage):
            batch = Batch(frame_files=files, questions=()).only(tuple(questions))
            return answer_permuted(ask, batch)
    except InternalError as error:
        if len(questions) == 1:
            return [Rejected.of(error)]
    return [reply for question in questions for reply in _ask([question], files, ask)]


@contextmanager
def _failing_alone(job: Job, shard_outcome: ShardOutcome) -> Iterator[None]:
    try:
        with failing_alone(f"The question of job {job.job_id}", stage=InferenceError.stage):
            yield
    except InternalError as error:
        shard_outcome.failures.append(Failure.of(error, job, shard_outcome.index))


def _fault_of(video: ExtractedVideo, read: bytes | JobError) -> tuple[JobError | None, str | None]:
    if isinstance(read, VideoError):
        return read, read.fingerprint
    return read if isinstance(read, JobError) else None, video.provenance.fingerprint


def _batches(
    group: Mapping[Shown, tuple[Sequence[ExtractedVideo], Sequence[Job]]], spec: RunSpec, shard_outcome: ShardOutcome
) -> Iterator[list[tuple[Shown, Job, Question]]]:
    """Yield the questions of a group in batches of bounded size; a larger question is a batch by itself."""
    batch: list[tuple[Shown, Job, Question]] = []
    prompts = tokens = 0
    for views, (videos, jobs) in group.items():
        frame_bytes = sum(video.frame_bytes for video in videos)
        for job in jobs:
            question: Question | None = None
            with _failing_alone(job, shard_outcome):
                question = build_question(job, spec, files=[view.name for view in views])
            if question is None:
                continue
            orders = 1 + len(question.permutations)
            text_bytes = len(f"{question.text}{question.system_prompt}".encode())
            more_tokens = orders * (question.max_tokens + text_bytes + frame_bytes // _VIDEO_BYTES_PER_TOKEN)
            if batch and (prompts + orders > MAX_PROMPTS or tokens + more_tokens > MAX_TOKENS):
                yield batch
                batch, prompts, tokens = [], 0, 0
            batch.append((views, job, question))
            prompts += orders
            tokens += more_tokens
    if batch:
        yield batch


def _record_reply(
    reply: Reply,
    job: Job,
    views: Shown,
    videos: Sequence[ExtractedVideo],
    context: AnswerContext,
    shard_outcome: ShardOutcome,
) -> None:
    parts = [
        replace(video.provenance, cache_read_ms=shard_outcome.read_ms[view])
        for view, video in zip(views, videos, strict=True)
    ]
    seen = merge_media(job.media, parts) if job.media else parts[0]
    if not isinstance(reply, Answer):
        shard_outcome.failures.append(Failure.of(reply, job, shard_outcome.index, fingerprint=seen.fingerprint))
        return
    shard_outcome.results.append(
        JobResult(
            job=job,
            answer=reply,
            provenance=seen,
            shard_index=shard_outcome.index,
            routed_by=_routed_by(views, videos, context.spec),
        )
    )


def _read_group(
    group: dict[View, ExtractedVideo],
    context: AnswerContext,
    shard_outcome: ShardOutcome,
    readers: Executor,
) -> dict[View, tuple[ExtractedVideo, bytes | JobError]]:
    read: dict[View, tuple[ExtractedVideo, bytes | JobError]] = {}
    with context.profile.doing(RunPhase.CACHE_READ):
        outcomes = readers.map(in_context(partial(_read, context)), group, group.values())
        for view, (video, outcome, read_ms) in zip(group, outcomes, strict=True):
            shard_outcome.read_ms[view] = shard_outcome.read_ms.get(view, 0.0) + read_ms
            if video is not group[view]:
                shard_outcome.videos.append(video)
            read[view] = video, outcome
    return read


def _read(context: AnswerContext, view: View, video: ExtractedVideo) -> tuple[ExtractedVideo, bytes | JobError, float]:
    started = time.perf_counter()
    try:
        with failing_alone(f"Reading the frames of {redact_uri(view.video_uri)}", stage=FrameFileError.stage):
            with suppress(FrameFileError, ObjectMissingError):
                return video, _read_frame_file(video, context), (time.perf_counter() - started) * 1e3
            video = _extract_again(view, context)
            outcome: bytes | JobError = _read_frame_file(video, context)
    except (FrameFileError, ObjectMissingError) as error:
        uri = context.extractor.cache.uri_of(video.identity.key)
        outcome = FrameFileError(f"The frame file {uri} was rewritten, but cannot be used either: {error.message}")
    except JobError as error:
        outcome = error
    return video, outcome, (time.perf_counter() - started) * 1e3


def _read_frame_file(video: ExtractedVideo, context: AnswerContext) -> bytes:
    extractor = context.extractor
    data = extractor.cache.read(video.identity)
    try:
        return with_pixels(data, extractor.pool, extractor.limits)
    except VideoError as error:
        error.fingerprint = video.provenance.fingerprint
        raise


def _extract_again(view: View, context: AnswerContext) -> ExtractedVideo:
    video = prepare_view(context.extractor, view)
    record_videos([video])
    log_rewritten([video])
    return video


def _routed_by(views: Shown, videos: Sequence[ExtractedVideo], spec: RunSpec) -> str:
    """Return why `auto` chose the dense sampler, `task` or `coverage`; empty if it did not, for any video."""
    if spec.sampling.sampler != "auto" or all(video.provenance.sampler == "keyframes" for video in videos):
        return ""
    return "task" if any(view.shown == "dense" for view in views) else "coverage"


def _fail(
    jobs: Sequence[Job], views: Shown, found: Sequence[tuple[JobError | None, str | None]], shard_index: int
) -> list[Failure]:
    """Return the failures of jobs because of the first of their videos that cannot be used.

    `found` has the fault of each view, None if it can be used, and the fingerprint of its video, if known.
    """
    view, fault = next((view, fault) for view, (fault, _) in zip(views, found, strict=True) if fault)
    cause, uri = Rejected.of(fault), redact_uri(view.video_uri)
    if len(views) > 1 and uri not in cause.message:
        cause = msgspec.structs.replace(cause, message=f"{uri}: {cause.message}")
    fingerprint = join_fingerprints([each for _, each in found])
    return [Failure.of(cause, job, shard_index, fingerprint=fingerprint) for job in jobs]
