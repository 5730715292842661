"""What `auto` would reach at other thresholds of the verdict, told from answers by keyframes and by all frames."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from benchmarks.trade.mix import MOTION
from benchmarks.trade.ways import FAITHFUL
from tasks.video.verdict import USUAL, Thresholds, judge

if TYPE_CHECKING:
    from benchmarks.trade.asking import Answers

_NONE = Thresholds(min_keyframes=1, max_gap_s=1e6, min_coverage=0.0)
_ALONE = (
    *(replace(_NONE, min_keyframes=number) for number in (3, 4, 8, 16)),
    *(replace(_NONE, max_gap_s=gap_s) for gap_s in (1.0, 1.5, 2.0, 2.5, 4.0)),
    *(replace(_NONE, min_coverage=cover) for cover in (0.2, 0.4, 0.6, 0.8)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """Thresholds, and what they give on questions about motion.

    Attributes:
        name: Those that are not out of effect.
        by_keyframes: Share of the clips whose keyframes are enough, 0 to 1.
        accuracy: Share of the questions that are answered right.
        frames_decoded: Frames of both kinds.
    """

    name: str
    by_keyframes: float
    accuracy: float
    frames_decoded: int


def try_thresholds(manifest: pl.DataFrame, first: Answers, lossless: Answers) -> list[Tried]:
    """Judge clips by none, by each threshold alone, and by the usual ones together.

    First comes what the model's own sampler gives.

    Args:
        manifest: The jobs with their answers.
        first: From keyframes.
        lossless: By the model's own sampler.
    """
    moving = manifest.filter(task=MOTION).select("job_id", "answer")
    rows = moving.join(first.rows, on="job_id").join(lossless.rows, on="job_id", suffix="_again")
    ends = [
        _try(rows, replace(USUAL, coverage_radius_s=0.0), f"all by {FAITHFUL}"),  # nothing is near a keyframe
        _try(rows, _NONE, "none: clips of one keyframe alone"),
    ]
    alone = [_try(rows, thresholds, _named(thresholds)) for thresholds in _ALONE]
    return [*ends, *alone, _try(rows, USUAL, f"the usual: {_named(USUAL)}")]


def _named(thresholds: Thresholds) -> str:
    """Name the numbers that are in effect."""
    numbers = {name: value for name, value in asdict(thresholds).items() if value != getattr(_NONE, name)}
    return ", ".join(f"{name} {value:g}" for name, value in numbers.items())


def _try(rows: pl.DataFrame, thresholds: Thresholds, name: str) -> Tried:
    verdicts = [
        _is_good(keyframe_ms, duration_s, thresholds)
        for keyframe_ms, duration_s in rows.select("keyframe_ms", "duration_s").iter_rows()
    ]
    is_good = pl.Series(verdicts)
    taken = rows.select(
        right=pl.when(is_good).then("label").otherwise("label_again") == pl.col("answer"),
        frames=pl.when(is_good).then("frames_decoded").otherwise("frames_decoded_again"),
    )
    return Tried(
        name=name,
        by_keyframes=int(is_good.sum()) / len(rows),
        accuracy=int(taken["right"].sum()) / len(rows),
        frames_decoded=int(taken["frames"].sum()),
    )


def _is_good(keyframe_ms: list[int] | None, duration_s: float, thresholds: Thresholds) -> bool:
    times_ms = None if keyframe_ms is None else np.array(keyframe_ms, np.int64)
    return judge(times_ms, keyframes=0, duration_s=duration_s, thresholds=thresholds).is_good
