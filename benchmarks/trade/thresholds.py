"""Results of `auto` at other coverage thresholds, computed from answers with keyframes and with the dense sampler."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from benchmarks.trade.candidates import DENSE
from benchmarks.trade.mix import MOTION
from reelabel.coverage import DEFAULT_THRESHOLDS, CoverageThresholds, measure_coverage

if TYPE_CHECKING:
    from benchmarks.trade.inference import Answers

_NONE = CoverageThresholds(min_keyframes=1, max_gap_s=1e6, min_coverage=0.0)
_ALONE = (
    *(replace(_NONE, min_keyframes=number) for number in (3, 4, 8, 16)),
    *(replace(_NONE, max_gap_s=gap_s) for gap_s in (1.0, 1.5, 2.0, 2.5, 4.0)),
    *(replace(_NONE, min_coverage=cover) for cover in (0.2, 0.4, 0.6, 0.8)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdResult:
    """Result of some thresholds on questions about motion.

    Attributes:
        name: The thresholds in effect.
        by_keyframes: Share of the clips whose keyframes are sufficient, 0 to 1.
        accuracy: Share of right answers.
        frames_decoded: Frames decoded by both samplers.
    """

    name: str
    by_keyframes: float
    accuracy: float
    frames_decoded: int


def try_thresholds(manifest: pl.DataFrame, first: Answers, second: Answers) -> list[ThresholdResult]:
    """Apply no threshold, each one alone, and the default ones together.

    The first result is that of the dense sampler.

    Args:
        manifest: Jobs with their right answers.
        first: Answers with keyframes.
        second: Answers with the dense sampler.
    """
    moving = manifest.filter(task=MOTION).select("job_id", "answer")
    rows = moving.join(first.rows, on="job_id").join(second.rows, on="job_id", suffix="_again")
    ends = [
        _try(
            rows, replace(DEFAULT_THRESHOLDS, coverage_radius_s=0.0), f"{DENSE} for all clips"
        ),  # no instant is near a keyframe
        _try(rows, _NONE, "none: clips of one keyframe alone"),
    ]
    alone = [_try(rows, thresholds, _named(thresholds)) for thresholds in _ALONE]
    return [*ends, *alone, _try(rows, DEFAULT_THRESHOLDS, f"default: {_named(DEFAULT_THRESHOLDS)}")]


def _named(thresholds: CoverageThresholds) -> str:
    """Return the names and values of the thresholds in effect."""
    numbers = {name: value for name, value in asdict(thresholds).items() if value != getattr(_NONE, name)}
    return ", ".join(f"{name} {value:g}" for name, value in numbers.items())


def _try(rows: pl.DataFrame, thresholds: CoverageThresholds, name: str) -> ThresholdResult:
    sufficient = [
        _are_sufficient(keyframe_ms, duration_s, thresholds)
        for keyframe_ms, duration_s in rows.select("keyframe_ms", "duration_s").iter_rows()
    ]
    by_keyframes = pl.Series(sufficient)
    taken = rows.select(
        right=pl.when(by_keyframes).then("label").otherwise("label_again") == pl.col("answer"),
        frames=pl.when(by_keyframes).then("frames_decoded").otherwise("frames_decoded_again"),
    )
    return ThresholdResult(
        name=name,
        by_keyframes=int(by_keyframes.sum()) / len(rows),
        accuracy=int(taken["right"].sum()) / len(rows),
        frames_decoded=int(taken["frames"].sum()),
    )


def _are_sufficient(keyframe_ms: list[int] | None, duration_s: float, thresholds: CoverageThresholds) -> bool:
    times_ms = None if keyframe_ms is None else np.array(keyframe_ms, np.int64)
    return measure_coverage(times_ms, keyframes=0, duration_s=duration_s, thresholds=thresholds).is_good
