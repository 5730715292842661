"""What a run measures of its work; kept nowhere unless `infra.telemetry` sends it somewhere."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from opentelemetry import metrics

from infra.errors import VideoError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tasks.domain import Failure, JobResult
    from tasks.frames.prepare import PreparedVideo

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)

_METER = metrics.get_meter("reelabel")
_jobs = _METER.create_counter("reelabel.jobs", "{job}", "Jobs that ended, by outcome.")
_failures = _METER.create_counter("reelabel.failures", "{job}", "Jobs that failed, by code and stage.")
_videos = _METER.create_counter("reelabel.videos", "{video}", "Videos, by where their frames came from.")
_bytes = _METER.create_counter("reelabel.transferred", "By", "Bytes read of videos, and pixels handed to the model.")
_tokens = _METER.create_counter("reelabel.tokens", "{token}", "Tokens of prompts, computed or cached.")
_stages = _METER.create_histogram(
    "reelabel.stage.duration",
    "s",
    "Seconds of one stage: of a video, an answer, or a shard's rows.",
    explicit_bucket_boundaries_advisory=_SECONDS,
)
_under_way = _METER.create_up_down_counter("reelabel.shards.under_way", "{shard}", "Shards being worked on, by stage.")
_left = _METER.create_gauge("reelabel.run.jobs.left", "{job}", "Jobs of the run without an ending.")
_spent = _METER.create_gauge("reelabel.run.time", "s", "Where the run's wall time went, as its engine sees it.")


@contextmanager
def under_way(stage: str) -> Iterator[None]:
    """Count a shard as being worked on meanwhile.

    Args:
        stage: `extract` or `answer`.
    """
    _under_way.add(1, {"stage": stage})
    try:
        yield
    finally:
        _under_way.add(-1, {"stage": stage})


def count_videos(outcomes: Iterable[PreparedVideo | VideoError]) -> None:
    """Count videos that were prepared, or failed to be."""
    # A source without any video counts zero: a share of what was never counted would be no number.
    sources = dict.fromkeys(("cache", "video", "failed"), 0)
    for outcome in outcomes:
        if isinstance(outcome, VideoError):
            sources["failed"] += 1
            continue
        sources["cache" if outcome.was_cached else "video"] += 1
        _bytes.add(outcome.bytes_fetched, {"kind": "video"})
        _bytes.add(outcome.frame_bytes, {"kind": "pixels"})
        spent_ms = {"lookup": outcome.lookup_ms}
        if not outcome.was_cached:
            spent_ms |= {
                "fetch": outcome.fetch_ms,
                "decode": outcome.decode_ms,
                "cache write": outcome.cache_write_ms,
            }
        for stage, ms in spent_ms.items():
            _stages.record(ms / 1e3, {"stage": stage})
    for source, count in sources.items():
        _videos.add(count, {"source": source})


def count_endings(
    results: Sequence[JobResult],
    failures: Sequence[Failure],
    *,
    dataset: str,
    read_ms: Iterable[float],
    write_ms: float,
) -> None:
    """Count how a shard's jobs ended.

    Args:
        results: Its labels.
        failures: Its failures.
        dataset: Of the run.
        read_ms: Milliseconds of reading each frame file.
        write_ms: Milliseconds of writing the rows.
    """
    _jobs.add(len(results), {"outcome": "labelled", "dataset": dataset})
    _jobs.add(len(failures), {"outcome": "failed", "dataset": dataset})
    for failure in failures:
        _failures.add(1, {"code": failure.code, "stage": str(failure.stage), "dataset": dataset})
    for answer in (result.answer for result in results):
        _tokens.add(answer.prompt_tokens - answer.cached_tokens, {"kind": "computed"})
        _tokens.add(answer.cached_tokens, {"kind": "cached"})
        _stages.record(answer.preprocess_ms / 1e3, {"stage": "preprocess"})
        _stages.record(answer.inference_ms / 1e3, {"stage": "inference"})
    for ms in read_ms:
        _stages.record(ms / 1e3, {"stage": "cache read"})
    _stages.record(write_ms / 1e3, {"stage": "database"})


def note_left(jobs: int) -> None:
    """Say how many of the run's jobs have no ending yet."""
    _left.set(jobs)


def note_spent(spent_ms: Mapping[str, float]) -> None:
    """Say where the run's wall time went so far, by part."""
    for part, ms in spent_ms.items():
        _spent.set(ms / 1e3, {"part": part})
