"""Concurrent load on one database: writers of results, and workers that lease shards."""

from __future__ import annotations

import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.scale.synthetic import RUN
from infra.database.connect import connect
from tasks.description.chunks import cut_chunks
from tasks.description.described import DescribedVideo
from tasks.description.pooling import ChunkDescription, Description, ScoredText
from tasks.description.scenes.change import SceneChange, SceneChanges
from tasks.description.scenes.detect import Scene
from tasks.domain import Answer, Failure, Job, JobResult, Stage
from tasks.domain.provenance import FrameProvenance
from tasks.plans.lease import Work, claim
from tasks.results.write import ShardWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from threading import Barrier
    from uuid import UUID

    from infra.settings import DatabaseSettings

SHARD_JOBS = 100
_CHUNK_S = 10.0


class ProcessResult(NamedTuple):
    """Work of one process: its start, when all were ready, and end by the system's clock; rows written, or shards."""

    began_s: float
    ended_s: float
    done: Any


def run_in_parallel(act: Callable[..., ProcessResult], *, processes: int) -> tuple[float, list[ProcessResult]]:
    """Call a function in several processes at once; return the seconds from the first start to the last end."""
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, ProcessPoolExecutor(processes, mp_context=context) as pool:
        results = list(pool.map(partial(act, start=manager.Barrier(processes)), range(processes)))
    return max(each.ended_s for each in results) - min(each.began_s for each in results), results


def write_results(
    number: int, start: Barrier, *, threads: int, shards: int, settings: DatabaseSettings
) -> ProcessResult:
    """Write shards of a hundred jobs, one of them failed, from several threads, as a flow does."""
    writer = ShardWriter(connect(settings), RUN)
    outcomes = [_outcomes(number, shard) for shard in range(shards)]
    with writer.engine.connect(), ThreadPoolExecutor(threads) as pool:
        began_s = _wait(start)
        list(pool.map(lambda each: writer.write(*each), outcomes))
    return ProcessResult(began_s=began_s, ended_s=time.time(), done=shards * SHARD_JOBS)


def write_descriptions(
    number: int, start: Barrier, *, threads: int, shards: int, settings: DatabaseSettings
) -> ProcessResult:
    """Write shards of a hundred described videos, of three chunks each, from several threads, as a flow does."""
    writer = ShardWriter(connect(settings), RUN)
    described = [
        [_described(_job(f"described-{number}", shard, video), shard) for video in range(SHARD_JOBS)]
        for shard in range(shards)
    ]
    with writer.engine.connect(), ThreadPoolExecutor(threads) as pool:
        began_s = _wait(start)
        list(pool.map(lambda each: writer.write((), (), descriptions=each), described))
    return ProcessResult(began_s=began_s, ended_s=time.time(), done=shards * SHARD_JOBS)


def _wait(start: Barrier) -> float:
    start.wait()
    return time.time()


def _outcomes(writer: int, shard: int) -> tuple[list[JobResult], list[Failure]]:
    jobs = [_job(f"written-{writer}", shard, number) for number in range(SHARD_JOBS)]
    results = [_result(job, shard) for job in jobs[1:]]
    return results, [_failure(jobs[0], shard)]


def _job(prefix: str, shard: int, number: int) -> Job:
    clip = f"{prefix}-{shard:07}-{number:03}"
    choices = ("picks it up", "puts it down", "throws it", "none of these")
    prompt = "What does the person in the video do with the object?"
    job = Job(job_id=clip, video_uri=f"s3://footage/{clip}.mp4", prompt=prompt, choices=choices, task="action")
    _ = job.digest  # computed during planning
    return job


def _result(job: Job, shard: int) -> JobResult:
    answer = Answer(
        choice_index=0,
        probabilities=(0.513671875, 0.25, 0.1611328125, 0.0751953125),
        prompt_tokens=1071,
        cached_tokens=1024,
        preprocess_ms=9.481,
        inference_ms=10.733,
    )
    return JobResult(
        job=job,
        answer=answer,
        provenance=FrameProvenance(
            fingerprint="etag-9e107d9d372bb6826bd81d3542a419d6-1234567",
            decode_method="index",
            keyframes_in_file=30,
            frames_used=16,
            fetch_ms=1.5,
            decode_ms=30.517,
            cache_write_ms=2.493,
            cache_read_ms=1.271,
        ),
        shard_index=shard,
    )


def _described(job: Job, shard: int) -> DescribedVideo:
    tags = tuple(ScoredText(text=f"place {place}", score=0.08 - place / 100, probability=0.01) for place in range(5))
    caption = ScoredText(text="people walk along a street", score=0.101, probability=0.02)
    chunks = cut_chunks(3 * _CHUNK_S, chunk_s=_CHUNK_S)
    parts = tuple(ChunkDescription(chunk=chunk, frames=16, tags=tags, caption=caption) for chunk in chunks)
    cut = SceneChange(pts_ms=14_040, score=41.5, since_ms=14_000)
    return DescribedVideo(
        job=job,
        fingerprint="etag-9e107d9d372bb6826bd81d3542a419d6-1234567",
        embedding_key=f"v1/{job.digest[:2]}/{job.digest}.arrow",
        dimensions=768,
        shard_index=shard,
        duration_s=3 * _CHUNK_S,
        frames=48,
        description=Description(tags=tags, caption=caption, chunks=parts),
        changes=SceneChanges(changes=(cut,), method="index and ema"),
        scenes=(Scene(0, 14.04, 1), Scene(14.04, 30, 1)),
        was_cached=True,
    )


def _failure(job: Job, shard: int) -> Failure:
    message = "No frame of the video can be decoded."
    return Failure(job=job, stage=Stage.DECODE, code="no_keyframes", message=message, shard_index=shard)


def lease_shards(
    number: int, start: Barrier, *, threads: int, plan_id: UUID, settings: DatabaseSettings
) -> ProcessResult:
    """Lease shards from several threads until none is left; return the numbers of those leased."""
    engine = connect(settings, pool_size=threads)

    def lease_all(thread: int) -> list[int]:
        taken: list[int] = []
        holder = f"worker {number}/{thread}"
        while lease := claim(engine, plan_id, Work.BOTH, holder=holder, lease_s=600):
            taken.append(lease.shard_index)
        return taken

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda _: engine.connect().close(), range(threads)))
        began_s = _wait(start)
        leased = [index for each in pool.map(lease_all, range(threads)) for index in each]
    return ProcessResult(began_s=began_s, ended_s=time.time(), done=leased)
