"""OpenTelemetry metrics of a run; discarded unless `infra.telemetry` exports them."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

from opentelemetry import metrics

from reelabel.errors import JobError
from tasks.domain import Stage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from reelabel.frames.extractor import ExtractedVideo
    from tasks.description.described import DescribedVideo
    from tasks.domain import Answer, Failure, JobResult

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)

_EXTRACTING = {Stage.FETCH, Stage.DECODE}
# Those without a video are counted as 0, so that ratios of these series are defined.
_SOURCES = ("cache", "video", "remade", "failed")

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


@contextmanager
def shard_in_progress(stage: str) -> Iterator[None]:
    """Count a shard as in progress in a stage, `extract` or `infer`, while the body runs."""
    _in_progress.add(1, {"stage": stage})
    try:
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
        sources["cache" if outcome.was_cached else "remade" if outcome.remade else "video"] += 1
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
    _jobs.add(len(failures), {"outcome": "failed", "dataset": dataset, **_INFER})
    for failure in failures:
        stage = _EXTRACT if failure.stage in _EXTRACTING else _INFER
        _failures.add(1, {"code": failure.code, "step": str(failure.stage), "dataset": dataset, **stage})
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
    _jobs.add(len(failures), {"outcome": "failed", "dataset": dataset, **_INFER})
    for failure in failures:
        stage = _EXTRACT if failure.stage in _EXTRACTING else _INFER
        _failures.add(1, {"code": failure.code, "step": str(failure.stage), "dataset": dataset, **stage})
    sources = Counter("cache" if video.was_cached else "remade" if video.remade else "video" for video in described)
    sources["failed"] = sum(failure.stage in _EXTRACTING for failure in failures)
    for source in _SOURCES:
        _videos.add(sources[source], {"source": source, **_EXTRACT})
    for cost in (video.cost for video in described):
        _bytes.add(cost.bytes_fetched, {"kind": "video", **_EXTRACT})
        for step, stage in _STEPS_OF_DESCRIPTION.items():
            if spent_ms := getattr(cost, f"{step.replace(' ', '_')}_ms"):  # else it was not taken
                _steps.record(spent_ms / 1e3, {"step": step, **stage})
    _record_step("database", write_ms)


def _record_step(step: str, ms: float) -> None:
    _steps.record(ms / 1e3, {"step": step, **_INFER})


def set_jobs_left(jobs: int) -> None:
    """Set the number of jobs that have not ended."""
    _left.set(jobs)


def set_time_spent(spent_ms: Mapping[str, float]) -> None:
    """Set the wall-clock time spent so far, by part."""
    for part, ms in spent_ms.items():
        _spent.set(ms / 1e3, {"part": part})
