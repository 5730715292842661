"""One shard's work: extraction on the CPUs, inference on the engine."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from prefect import task
from prefect.cache_policies import NO_CACHE

from infra.errors import EngineLostError, FrameFileError, JobError, ObjectMissingError, TransientError, VideoError
from tasks.domain import Answer, Failure, JobResult, Stage
from tasks.frames.file import decode_frame_file
from tasks.model.prompt import question_text
from tasks.model.questions import Batch, Question
from tasks.results.write import write_shard

if TYPE_CHECKING:
    from prefect import Task
    from prefect.client.schemas.objects import State, TaskRun
    from sqlalchemy import Engine

    from tasks.domain import Job, RunSpec, Shard
    from tasks.frames.cache import FrameCache
    from tasks.frames.prepare import PreparedVideo, Preparer
    from tasks.model.process import EngineProcess
    from tasks.model.questions import Reply
    from tasks.results.write import RunKey

_ENGINE_STARTS = 2
_RETRIES = 3
_RETRY_DELAYS_S = [2.0, 10.0, 30.0]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractedShard:
    """A shard whose frame files stand in the cache, but for the videos that failed.

    Attributes:
        prepared: By video URI.
        faults: By video URI: why it has no frame file.
    """

    shard: Shard
    prepared: dict[str, PreparedVideo] = field(repr=False)
    faults: dict[str, VideoError] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardReport:
    """What one shard came to.

    Attributes:
        stage_ms: Milliseconds by stage, summed over videos and jobs.
    """

    index: int
    labels: int
    failures: int
    videos_extracted: int
    videos_cached: int
    stage_ms: dict[str, float]

    def __str__(self) -> str:
        """Say it in one line."""
        videos = f"{self.videos_extracted} videos extracted, {self.videos_cached} from the cache"
        seconds = ", ".join(f"{stage} {ms / 1e3:.2f}" for stage, ms in self.stage_ms.items())
        return f"Shard {self.index}: {self.labels} labels, {self.failures} failures; {videos}; seconds: {seconds}."


@dataclass(frozen=True, slots=True, kw_only=True)
class Answering:
    """What inference needs besides the shard."""

    spec: RunSpec
    cache: FrameCache
    engine: EngineProcess
    database: Engine
    run: RunKey


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
        outcomes = dict(
            zip(shard.video_uris, workers.map(lambda uri: _prepare(preparer, uri), shard.video_uris), strict=True)
        )
    return ExtractedShard(
        shard=shard,
        prepared={uri: outcome for uri, outcome in outcomes.items() if not isinstance(outcome, VideoError)},
        faults={uri: outcome for uri, outcome in outcomes.items() if isinstance(outcome, VideoError)},
    )


def _prepare(preparer: Preparer, uri: str) -> PreparedVideo | VideoError:
    try:
        return preparer.prepare(uri)
    except VideoError as error:
        return error


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
    files, read_ms, faults = _read_frame_files(extracted, answering.cache)
    asked = [job for job in extracted.shard.jobs if job.video_uri in files]
    questions = tuple(_question(job, answering.spec) for job in asked)
    replies = ask_engine(answering.engine, Batch(frame_files=files, questions=questions)) if questions else []
    results: list[JobResult] = []
    failures: list[Failure] = [
        _failure(job, faults[job.video_uri], index, extracted)
        for job in extracted.shard.jobs
        if job.video_uri in faults
    ]
    for job, reply in zip(asked, replies, strict=True):
        prepared = extracted.prepared[job.video_uri]
        if isinstance(reply, Answer):
            results.append(_result(job, prepared, reply, cache_read_ms=read_ms[job.video_uri], shard_index=index))
        else:
            failures.append(
                Failure(
                    job=job,
                    stage=Stage.PROMPT,
                    code=reply.code,
                    message=reply.message,
                    shard_index=index,
                    source_fingerprint=prepared.fingerprint,
                ),
            )
    started = time.perf_counter()
    write_shard(answering.database, run=answering.run, results=results, failures=failures)
    write_ms = (time.perf_counter() - started) * 1e3
    videos = extracted.prepared.values()
    return ShardReport(
        index=index,
        labels=len(results),
        failures=len(failures),
        videos_extracted=sum(not video.was_cached for video in videos),
        videos_cached=sum(video.was_cached for video in videos),
        stage_ms={
            "fetch": sum(video.fetch_ms for video in videos),
            "decode": sum(video.decode_ms for video in videos),
            "cache write": sum(video.cache_write_ms for video in videos),
            "cache read": sum(read_ms.values()),
            "preprocess": sum(result.answer.preprocess_ms for result in results),
            "inference": sum(result.answer.inference_ms for result in results),
            "database": write_ms,
        },
    )


def ask_engine(engine: EngineProcess, batch: Batch) -> list[Reply]:
    """Ask a batch; an engine that dies on it is started again once.

    Raises:
        EngineLostError: It died each time.
    """
    for start in range(1, _ENGINE_STARTS + 1):
        try:
            return engine.ask(batch)
        except EngineLostError:
            if start == _ENGINE_STARTS:
                raise
            engine.start()
    raise AssertionError


def _read_frame_files(
    extracted: ExtractedShard,
    cache: FrameCache,
) -> tuple[dict[str, bytes], dict[str, float], dict[str, JobError]]:
    """Read and verify frame files by video URI; with milliseconds, and the faults of those that have none."""
    files: dict[str, bytes] = {}
    read_ms: dict[str, float] = {}
    faults: dict[str, JobError] = dict(extracted.faults)
    for uri, prepared in extracted.prepared.items():
        started = time.perf_counter()
        try:
            data = cache.read(prepared.key)
            decode_frame_file(data)
            files[uri] = data
        except (FrameFileError, ObjectMissingError) as error:
            faults[uri] = FrameFileError(f"{cache.uri_of(prepared.key)}: {error.message} Run again to make it anew.")
        read_ms[uri] = (time.perf_counter() - started) * 1e3
    return files, read_ms, faults


def _question(job: Job, spec: RunSpec) -> Question:
    return Question(
        video_id=job.video_uri,
        text=question_text(spec.template, prompt=job.prompt, choices=job.choices),
        system_prompt=job.system_prompt or spec.system_prompt,
        choices=job.choices,
        scoring=spec.choice_scoring,
    )


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
    )


def _failure(job: Job, error: JobError, index: int, extracted: ExtractedShard) -> Failure:
    prepared = extracted.prepared.get(job.video_uri)
    return Failure(
        job=job,
        stage=Stage.CACHE if isinstance(error, FrameFileError) else Stage.DECODE,
        code=error.code,
        message=error.message,
        shard_index=index,
        source_fingerprint=prepared.fingerprint if prepared else None,
    )
