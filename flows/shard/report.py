"""The report of a shard: its counts and times, its failures, and OpenTelemetry metrics.

Metrics are discarded unless `infra.telemetry` exports them.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import fsum
from typing import TYPE_CHECKING, Any

from opentelemetry import metrics

from infra.telemetry import traced
from reelabel.errors import JobError
from tasks.domain import RunPhase, Stage, views_of
from tasks.domain.cost import HELD, part_of_tally, tallied
from tasks.domain.coverage import count_reasons

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from flows.shard.context import ShardOutcome
    from reelabel.sampling.options import Sampling
    from tasks.description.described import DescribedVideo
    from tasks.domain import Answer, Failure, JobResult, WallClockProfile
    from tasks.frame_cache.extractor import ExtractedVideo
    from tasks.plans.extracted import ExtractedShard
    from tasks.results.write import RunKey, ShardResults, ShardWriter


_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)

_EXTRACTING = {Stage.FETCH, Stage.DECODE}
# Those without a video are counted as 0, so that ratios of these series are defined.
_SOURCES = ("cache", "video", "rewritten", "failed")

_METER = metrics.get_meter("reelabel")
_jobs = _METER.create_counter("reelabel.jobs", "{job}", "Jobs that ended, by outcome.")
_failures = _METER.create_counter("reelabel.failures", "{job}", "Jobs that failed, by code and step.")
_videos = _METER.create_counter("reelabel.videos", "{video}", "Videos, by the source of their frames.")
_bytes = _METER.create_counter("reelabel.transferred", "By", "Bytes of videos read, and of pixels sent to the model.")
_tokens = _METER.create_counter("reelabel.tokens", "{token}", "Tokens of prompts, computed or cached.")
_steps = _METER.create_histogram(
    "reelabel.step.duration",
    "s",
    "Seconds of one step of a stage: of a video, an answer, or a shard's rows.",
    explicit_bucket_boundaries_advisory=_SECONDS,
)
_in_progress = _METER.create_up_down_counter("reelabel.shards.under_way", "{shard}", "Shards in progress, by stage.")
_EXTRACT, _INFER = {"stage": "extract"}, {"stage": "infer"}
_STEPS_OF_DESCRIPTION = dict.fromkeys(("fetch", "decode", "cache write"), _EXTRACT) | dict.fromkeys(
    ("embed", "scenes", "describe"), _INFER
)
_left = _METER.create_gauge("reelabel.run.jobs.left", "{job}", "Jobs of the run that have not ended.")
_spent = _METER.create_gauge("reelabel.run.time", "s", "Wall-clock time of the run, by what the engine was doing.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardReport:
    """Counts and times of one shard.

    Attributes:
        tally: Amounts to sum over shards, by column of the run's row; `stage_ms` and `coverage` are flattened by
            `tallied`.
        between_s: Start and end of its extraction and inference, in seconds of Unix time.
    """

    index: int
    tally: Mapping[str, float]
    between_s: Mapping[str, tuple[float, float]]

    def __str__(self) -> str:
        tally, stage_ms = self.tally, part_of_tally(self.tally, "stage_ms")
        videos = f"{tally['videos_extracted']} videos extracted, {tally['videos_cached']} from the cache"
        seconds = ", ".join(f"{stage} {ms / 1e3:.2f}" for stage, ms in stage_ms.items())
        ended = f"{tally['jobs_labelled']} labels, {tally['jobs_failed']} failures"
        return f"Shard {self.index}: {ended}; {videos}; seconds: {seconds}."

    def with_tally(self, **amounts: float) -> ShardReport:
        return replace(self, tally={**self.tally, **amounts})

    def row(self, lap_ms: Mapping[str, float], gpus: int) -> dict[str, Any]:
        """Return the shard's column `report`; `lap_ms` is the worker's time by phase since its last shard."""
        gpu_ms = gpus * fsum(ms for part, ms in lap_ms.items() if part in HELD)
        tally = {**self.tally, **tallied("engines_ms", lap_ms), "gpu_ms": gpu_ms}
        return {"tally": tally, "gpus": gpus, "between_s": self.between_s}


def write_ended(
    ended: ShardResults,
    report: ShardReport,
    *,
    writer: ShardWriter,
    profile: WallClockProfile,
    lap: Callable[[], dict[str, float]],
    gpus: int,
) -> tuple[ShardResults, ShardReport, float]:
    """Write the outcomes of a shard's jobs, and finish the shard; return both as written, and the milliseconds taken.

    `lap` returns the worker's milliseconds by part since its last shard; if nothing is written, they are charged to the
    next attempt or shard.
    """
    started = time.perf_counter()
    with profile.doing(RunPhase.DATABASE), traced("rows"):
        lap_ms = lap()
        try:
            refused = writer.write(
                ended.results,
                ended.failures,
                chunks=ended.chunks,
                descriptions=ended.descriptions,
                lease=ended.lease,
                report=report.row(lap_ms, gpus),
            )
        except BaseException:
            profile.uncharge(lap_ms)
            raise
    if refused:
        ended = ended.with_refused(refused)
        report = report.with_tally(**ended.counts)
    write_ms = (time.perf_counter() - started) * 1e3
    _log_failures(ended.failures, writer.run)
    return ended, report.with_tally(**tallied("stage_ms", {"database": write_ms})), write_ms


def make_shard_report(
    extracted: ExtractedShard, outcomes: ShardOutcome, ended: ShardResults, sampling: Sampling
) -> ShardReport:
    """Return the report of a shard, before its rows are written.

    `outcomes` are per question, `ended` per job: a job that was cut has a question for each chunk.
    """
    videos, answers = outcomes.videos, [result.answer for result in outcomes.results]
    # By frame file, which several passes of a video may share.
    extracted_keys = {video.identity.key for video in videos if not video.was_cached}
    tally = {
        "shards_done": 1,
        **ended.counts,
        "videos_extracted": len(extracted_keys),
        "videos_cached": len({video.identity.key for video in videos} - extracted_keys),
        "videos_rewritten": sum(bool(video.rewritten) for video in videos),
        "prompt_tokens": sum(answer.prompt_tokens for answer in answers),
        "cached_tokens": sum(answer.cached_tokens for answer in answers),
        **tallied("stage_ms", stage_ms_of(outcomes)),
        **tallied("coverage", _count_coverage(outcomes.results, sampling)),
    }
    between_s = {"extract": extracted.between_s, "infer": (outcomes.began_s, time.time())}
    return ShardReport(index=outcomes.index, tally=tally, between_s=between_s)


def stage_ms_of(outcome: ShardOutcome) -> dict[str, float]:
    """Return the milliseconds that answering jobs took by step, summed over concurrent work."""
    spent = [video.provenance for video in outcome.videos]
    answers = [result.answer for result in outcome.results]
    embed_ms = sum(each.embed_ms for each in spent)
    return {
        "fetch": sum(each.fetch_ms for each in spent),
        "decode": sum(each.decode_ms for each in spent),
        **({"embed": embed_ms} if embed_ms else {}),
        "cache write": sum(each.cache_write_ms for each in spent),
        "cache read": sum(outcome.read_ms.values()),
        "preprocess": sum(answer.preprocess_ms for answer in answers),
        "inference": sum(answer.inference_ms for answer in answers),
    }


def _count_coverage(results: Iterable[JobResult], sampling: Sampling) -> dict[str, int]:
    """Count segments answered from keyframes by coverage, except for tasks that keyframes always suit."""
    by_keyframes = [each for each in results if each.provenance.sampler == "keyframes"]
    shown = {views_of(each.job, sampling): each.provenance.coverage for each in by_keyframes}
    by_job = {"keyframes", "image"}  # passes that show keyframes whatever the video
    return count_reasons(coverage for views, coverage in shown.items() if {view.shown for view in views} - by_job)


def _log_failures(failures: Sequence[Failure], run: RunKey) -> None:
    for failure in failures:
        known = {"run": str(run.run_id), "job": failure.job.job_id, "code": failure.code}
        logging.getLogger("reelabel").warning("Job %s failed: %s", failure.job.job_id, failure.message, extra=known)


@contextmanager
def shard_in_progress(stage: str) -> Iterator[None]:
    """Count and trace a shard as in progress in a stage, `extract` or `infer`, while the body runs."""
    _in_progress.add(1, {"stage": stage})
    try:
        with traced(stage):
            yield
    finally:
        _in_progress.add(-1, {"stage": stage})


def record_videos(outcomes: Iterable[ExtractedVideo | JobError]) -> None:
    """Count prepared and failed videos."""
    sources = dict.fromkeys(_SOURCES, 0)
    for outcome in outcomes:
        if isinstance(outcome, JobError):
            sources["failed"] += 1
            continue
        sources["cache" if outcome.was_cached else "rewritten" if outcome.rewritten else "video"] += 1
        provenance = outcome.provenance
        _bytes.add(provenance.bytes_fetched, {"kind": "video", **_EXTRACT})
        _bytes.add(outcome.frame_bytes, {"kind": "pixels", **_EXTRACT})
        spent_ms = {"lookup": outcome.lookup_ms}
        if not outcome.was_cached:
            spent_ms |= {
                "fetch": provenance.fetch_ms,
                "decode": provenance.decode_ms,
                "cache write": provenance.cache_write_ms,
            }
        if provenance.embed_ms:
            spent_ms["embed"] = provenance.embed_ms
        for step, ms in spent_ms.items():
            _steps.record(ms / 1e3, {"step": step, **_EXTRACT})
    for source, count in sources.items():
        _videos.add(count, {"source": source, **_EXTRACT})


def record_results(
    results: Sequence[JobResult],
    failures: Sequence[Failure],
    *,
    answers: Iterable[Answer],
    dataset: str,
    read_ms: Iterable[float],
    write_ms: float,
) -> None:
    """Count the jobs of a shard by outcome, and its times: of reading each frame file, and of writing the rows.

    `answers` are those that were computed: of chunks where jobs were cut, without those of earlier runs.
    """
    _jobs.add(len(results), {"outcome": "labelled", "dataset": dataset, **_INFER})
    _record_failures(failures, dataset)
    for answer in answers:
        _tokens.add(answer.prompt_tokens - answer.cached_tokens, {"kind": "computed", **_INFER})
        _tokens.add(answer.cached_tokens, {"kind": "cached", **_INFER})
        _record_step("preprocess", answer.preprocess_ms)
        _record_step("inference", answer.inference_ms)
    for ms in read_ms:
        _record_step("cache read", ms)
    _record_step("database", write_ms)


def record_descriptions(
    described: Sequence[DescribedVideo], failures: Sequence[Failure], *, dataset: str, write_ms: float
) -> None:
    """Count the described videos of a shard, its failures, and the time of writing the rows."""
    _jobs.add(len(described), {"outcome": "described", "dataset": dataset, **_INFER})
    _record_failures(failures, dataset)
    sources = Counter(
        "cache" if video.was_cached else "rewritten" if video.rewritten else "video" for video in described
    )
    sources["failed"] = sum(failure.stage in _EXTRACTING for failure in failures)
    for source in _SOURCES:
        _videos.add(sources[source], {"source": source, **_EXTRACT})
    for cost in (video.cost for video in described):
        _bytes.add(cost.bytes_fetched, {"kind": "video", **_EXTRACT})
        for step, stage in _STEPS_OF_DESCRIPTION.items():
            if spent_ms := getattr(cost, f"{step.replace(' ', '_')}_ms"):  # else it was not taken
                _steps.record(spent_ms / 1e3, {"step": step, **stage})
    _record_step("database", write_ms)


def _record_failures(failures: Sequence[Failure], dataset: str) -> None:
    _jobs.add(len(failures), {"outcome": "failed", "dataset": dataset, **_INFER})
    for failure in failures:
        stage = _EXTRACT if failure.stage in _EXTRACTING else _INFER
        _failures.add(1, {"code": failure.code, "step": str(failure.stage), "dataset": dataset, **stage})


def _record_step(step: str, ms: float) -> None:
    _steps.record(ms / 1e3, {"step": step, **_INFER})


def set_jobs_left(jobs: int) -> None:
    _left.set(jobs)


def set_time_spent(spent_ms: Mapping[str, float]) -> None:
    for part, ms in spent_ms.items():
        _spent.set(ms / 1e3, {"part": part})
