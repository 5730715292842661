"""One shard's work: extraction on the CPUs, inference on the engine."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from prefect import task
from prefect.cache_policies import NO_CACHE

from infra.errors import (
    EngineLostError,
    FrameFileError,
    InferenceError,
    JobError,
    ObjectMissingError,
    TransientError,
    VideoError,
)
from tasks.domain import Answer, Failure, JobResult, Part, Stage
from tasks.frames.file import decode_frame_file
from tasks.frames.packets import with_pixels
from tasks.model.orders import ask_in_every_order
from tasks.model.prompt import question_of
from tasks.model.questions import Batch, Refusal
from tasks.results.write import write_shard

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prefect import Task
    from prefect.client.schemas.objects import State, TaskRun
    from sqlalchemy import Engine

    from tasks.domain import Job, RunSpec, Shard, TimeLedger
    from tasks.frames.cache import FrameCache
    from tasks.frames.prepare import PreparedVideo, Preparer
    from tasks.model.process import EngineProcess
    from tasks.model.questions import Reply
    from tasks.results.write import RunKey
    from tasks.video.limits import Limits
    from tasks.video.pool import DecodePool

_TRIES = 2
_ENGINE_DEATHS = 20  # enough to single out one question of 200
_RETRIES = 3
_RETRY_DELAYS_S = [2.0, 10.0, 30.0]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractedShard:
    """A shard whose frame files stand in the cache, but for the videos that failed.

    Attributes:
        prepared: By video URI.
        faults: By video URI: why it has no frame file.
        spent_ms: Milliseconds of this work by part, summed over the videos.
    """

    shard: Shard
    prepared: dict[str, PreparedVideo] = field(repr=False)
    faults: dict[str, VideoError] = field(repr=False)
    spent_ms: dict[Part, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardReport:
    """What one shard came to.

    Attributes:
        stage_ms: Milliseconds by stage, summed over videos and jobs.
        prompt_tokens: Of its answers; `cached_tokens` are those of them served by the prefix cache.
    """

    index: int
    labels: int
    failures: int
    videos_extracted: int
    videos_cached: int
    stage_ms: dict[str, float]
    prompt_tokens: int
    cached_tokens: int

    def __str__(self) -> str:
        """Say it in one line."""
        videos = f"{self.videos_extracted} videos extracted, {self.videos_cached} from the cache"
        seconds = ", ".join(f"{stage} {ms / 1e3:.2f}" for stage, ms in self.stage_ms.items())
        return f"Shard {self.index}: {self.labels} labels, {self.failures} failures; {videos}; seconds: {seconds}."


@dataclass(frozen=True, slots=True, kw_only=True)
class Answering:
    """What inference needs besides the shard.

    Attributes:
        pool: Decodes frame files that hold packets.
        limits: What one of them may cost.
        batch_bytes: Frames handed to the engine at once.
        ledger: Where the time goes.
    """

    spec: RunSpec
    cache: FrameCache
    pool: DecodePool
    limits: Limits
    engine: EngineProcess
    database: Engine
    run: RunKey
    batch_bytes: int
    ledger: TimeLedger


def is_transient(_task: Task[..., object], _run: TaskRun, state: State) -> bool:
    """Let Prefect retry what may work later, and nothing else."""
    error = state.result(raise_on_failure=False)
    return isinstance(error, TransientError)


@task(
    task_run_name="extract-shard-{index}",
    retries=_RETRIES,
    retry_delay_seconds=_RETRY_DELAYS_S,
    retry_condition_fn=is_transient,
    cache_policy=NO_CACHE,
    persist_result=False,
)
def extract_shard(index: int, shard: Shard, preparer: Preparer, threads: int) -> ExtractedShard:  # noqa: ARG001
    """Cache the keyframes of a shard's videos, several at once.

    A bad video fails its own jobs, not the shard. Safe to run again: cached videos are skipped.
    """
    with ThreadPoolExecutor(threads) as workers:
        outcomes = list(workers.map(lambda uri: _prepare(preparer, uri), shard.video_uris))
    by_uri = dict(zip(shard.video_uris, (outcome for outcome, _ in outcomes), strict=True))
    return ExtractedShard(
        shard=shard,
        prepared={uri: outcome for uri, outcome in by_uri.items() if not isinstance(outcome, VideoError)},
        faults={uri: outcome for uri, outcome in by_uri.items() if isinstance(outcome, VideoError)},
        spent_ms=_spent_ms(outcomes),
    )


def _prepare(preparer: Preparer, uri: str) -> tuple[PreparedVideo | VideoError, float]:
    """Prepare a video; gives what became of it, and milliseconds."""
    started = time.perf_counter()
    try:
        outcome: PreparedVideo | VideoError = preparer.prepare(uri)
    except VideoError as error:
        outcome = error
    return outcome, (time.perf_counter() - started) * 1e3


def _spent_ms(outcomes: Iterable[tuple[PreparedVideo | VideoError, float]]) -> dict[Part, float]:
    spent_ms = dict.fromkeys((Part.FETCH, Part.DECODE, Part.CACHE_WRITE, Part.CACHE_READ), 0.0)
    for outcome, ms in outcomes:
        if isinstance(outcome, VideoError):  # a video that hangs its decoder says nothing of its times
            spent_ms[Part.FETCH if outcome.stage == Stage.FETCH else Part.DECODE] += ms
            continue
        spent_ms[Part.CACHE_READ if outcome.was_cached else Part.FETCH] += outcome.lookup_ms
        spent_ms[Part.FETCH] += outcome.fetch_ms
        spent_ms[Part.DECODE] += outcome.decode_ms
        spent_ms[Part.CACHE_WRITE] += outcome.cache_write_ms
    return spent_ms


@task(
    task_run_name="infer-shard-{index}",
    retries=_RETRIES,
    retry_delay_seconds=_RETRY_DELAYS_S,
    retry_condition_fn=is_transient,
    cache_policy=NO_CACHE,
    persist_result=False,
)
def infer_shard(index: int, extracted: ExtractedShard, answering: Answering) -> ShardReport:
    """Ask a shard's questions and write how each job ended, in one transaction."""
    answering.ledger.charge(Part.SCHEDULE)
    endings = _Endings(index=index, failures=_video_failures(extracted))
    for group in _groups(extracted, answering):
        _ask_group(group, extracted, answering, endings)
    started = time.perf_counter()
    write_shard(answering.database, run=answering.run, results=endings.results, failures=endings.failures)
    answering.ledger.charge(Part.DATABASE)
    return _report(extracted, endings, write_ms=(time.perf_counter() - started) * 1e3)


@dataclass(slots=True, kw_only=True)
class _Endings:
    """How a shard's jobs ended, as far as it came; milliseconds of reading frame files, by video URI."""

    index: int
    failures: list[Failure]
    results: list[JobResult] = field(default_factory=list)
    read_ms: dict[str, float] = field(default_factory=dict)


def _groups(extracted: ExtractedShard, answering: Answering) -> Iterator[list[PreparedVideo]]:
    """Cut a shard's videos into groups whose frames fit into one batch."""
    group: list[PreparedVideo] = []
    group_bytes = 0
    for video in extracted.prepared.values():
        if group and group_bytes + video.frame_bytes > answering.batch_bytes:
            yield group
            group, group_bytes = [], 0
        group.append(video)
        group_bytes += video.frame_bytes
    if group:
        yield group


def _ask_group(
    group: list[PreparedVideo],
    extracted: ExtractedShard,
    answering: Answering,
    endings: _Endings,
) -> None:
    files: dict[str, bytes] = {}
    faults: dict[str, JobError] = {}
    for video in group:
        started = time.perf_counter()
        try:
            files[video.uri] = _read_frame_file(video, answering)
        except JobError as error:
            faults[video.uri] = error
        endings.read_ms[video.uri] = (time.perf_counter() - started) * 1e3
    answering.ledger.charge(Part.CACHE_READ)
    asked = []
    for job in extracted.shard.jobs:
        if job.video_uri in files:
            asked.append(job)
        elif job.video_uri in faults:
            fingerprint = extracted.prepared[job.video_uri].fingerprint
            endings.failures.append(_failure(job, faults[job.video_uri], endings.index, fingerprint))
    questions = tuple(question_of(job, answering.spec) for job in asked)
    replies = _ask_timed(answering, Batch(frame_files=files, questions=questions)) if asked else []
    for job, reply in zip(asked, replies, strict=True):
        video = extracted.prepared[job.video_uri]
        if isinstance(reply, Answer):
            read_ms = endings.read_ms[job.video_uri]
            endings.results.append(_result(job, video, reply, cache_read_ms=read_ms, shard_index=endings.index))
        else:
            endings.failures.append(_failure(job, reply, endings.index, video.fingerprint))


def _ask_timed(answering: Answering, batch: Batch) -> list[Reply]:
    """Ask a batch; what the engine did not spend on its answers went before them, or on its loss."""
    starts = answering.engine.starts
    replies = ask_engine(answering.engine, batch)
    answer_ms = sum(reply.inference_ms for reply in replies if isinstance(reply, Answer))
    other = Part.PREPROCESS if answering.engine.starts == starts else Part.RESTART
    answering.ledger.charge(other, {Part.ANSWER: answer_ms})
    return replies


def _report(extracted: ExtractedShard, endings: _Endings, *, write_ms: float) -> ShardReport:
    videos = extracted.prepared.values()
    answers = [result.answer for result in endings.results]
    return ShardReport(
        index=endings.index,
        labels=len(endings.results),
        failures=len(endings.failures),
        videos_extracted=sum(not video.was_cached for video in videos),
        videos_cached=sum(video.was_cached for video in videos),
        stage_ms={
            "fetch": sum(video.fetch_ms for video in videos),
            "decode": sum(video.decode_ms for video in videos),
            "cache write": sum(video.cache_write_ms for video in videos),
            "cache read": sum(endings.read_ms.values()),
            "preprocess": sum(answer.preprocess_ms for answer in answers),
            "inference": sum(answer.inference_ms for answer in answers),
            "database": write_ms,
        },
        prompt_tokens=sum(answer.prompt_tokens for answer in answers),
        cached_tokens=sum(answer.cached_tokens for answer in answers),
    )


def ask_engine(engine: EngineProcess, batch: Batch) -> list[Reply]:
    """Ask a batch, whatever becomes of the engine.

    An engine that dies on a batch is started again and asked once more; dies it again, the batch is
    halved until the questions on which it dies stand alone, and they are refused.

    Raises:
        EngineLostError: It dies so often that the questions cannot be the cause.
        ModelError: It does not start again.
    """
    return _ask(engine, batch, [_ENGINE_DEATHS])


def _ask(engine: EngineProcess, batch: Batch, deaths_left: list[int]) -> list[Reply]:
    for _ in range(_TRIES):
        try:
            return ask_in_every_order(engine.ask, batch)
        except EngineLostError as error:
            deaths_left[0] -= 1
            if deaths_left[0] == 0:
                raise
            lost = error
            engine.start()
    if len(batch.questions) == 1:
        return [Refusal.of(InferenceError(f"The engine died on this question twice. {lost.message}"))]
    middle = len(batch.questions) // 2
    return [
        reply
        for half in (batch.questions[:middle], batch.questions[middle:])
        for reply in _ask(engine, batch.only(half), deaths_left)
    ]


def _read_frame_file(video: PreparedVideo, answering: Answering) -> bytes:
    """Read a frame file, check that it is whole, and see to it that it holds pixels.

    Raises:
        FrameFileError: It is damaged, or gone.
        VideoError: It holds packets that cannot be decoded any more.
    """
    cache = answering.cache
    try:
        return with_pixels(decode_frame_file(cache.read(video.key)), answering.pool, answering.limits)
    except (FrameFileError, ObjectMissingError) as error:
        raise FrameFileError(f"{cache.uri_of(video.key)}: {error.message} Run again to make it anew.") from None


def _video_failures(extracted: ExtractedShard) -> list[Failure]:
    return [
        _failure(job, fault, extracted.shard.index, fault.fingerprint)
        for job in extracted.shard.jobs
        if (fault := extracted.faults.get(job.video_uri))
    ]


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
