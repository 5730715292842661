"""Whether the keyframes of a video cover it, judged by their times alone."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Self

import numpy as np

from reelabel.segment import WHOLE, Segment, select_segment

if TYPE_CHECKING:
    import numpy.typing as npt


_MIN_LENGTH_S = 1e-3


class CoverageReason(StrEnum):
    """Why keyframes may not cover a video; codes never change once released."""

    ONE_KEYFRAME = "one_keyframe"
    FEW_KEYFRAMES = "few_keyframes"
    LONG_GAP = "long_gap"
    LOW_COVERAGE = "low_coverage"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverageThresholds:
    """The limits within which keyframes cover a video.

    Attributes:
        min_keyframes: Minimum number of keyframes.
        max_gap_s: Maximum gap between keyframes, in seconds.
        coverage_radius_s: Radius that a keyframe covers, in seconds.
        min_coverage: Minimum share of the video within that radius of a keyframe, 0 to 1.
    """

    min_keyframes: int = 4
    max_gap_s: float = 2.5
    coverage_radius_s: float = 0.5
    min_coverage: float = 0.4

    @classmethod
    def of(cls, options: object) -> Self:
        """Read thresholds from attributes of the same names; None or a missing attribute keeps the default."""
        given = {each.name: getattr(options, each.name, None) for each in fields(cls)}
        return cls(**{name: value for name, value in given.items() if value is not None})


DEFAULT_THRESHOLDS = CoverageThresholds()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyframeCoverage:
    """How well the keyframes of one video cover it.

    Attributes:
        keyframes: Number of keyframes.
        longest_gap_s: Longest gap without a keyframe, up to the end of the video; None if unknown.
        cover: Share of the video within `coverage_radius_s` of a keyframe, 0 to 1; None if unknown.
        reasons: Why the coverage may be insufficient; empty if it is sufficient.
    """

    keyframes: int
    longest_gap_s: float | None
    cover: float | None
    reasons: tuple[CoverageReason, ...]

    @property
    def is_good(self) -> bool:
        """Whether the keyframes cover the video."""
        return not self.reasons


def measure_coverage(
    times_ms: npt.NDArray[np.int64] | None,
    *,
    keyframes: int,
    duration_s: float,
    thresholds: CoverageThresholds,
    segment: Segment = WHOLE,
    first_ms: int | None = None,
    frames: int | None = None,
) -> KeyframeCoverage:
    """Measure how well keyframes cover a video, or a segment of it.

    If every instant is near a keyframe, their number does not matter; nor do gaps if every frame is a keyframe.

    Args:
        times_ms: Presentation times of the keyframes in milliseconds, ascending; shape (K,); None if unknown.
        keyframes: Number of keyframes, used if their times are unknown.
        duration_s: Duration of the video; 0.0 if unknown.
        thresholds: The limits of sufficient coverage.
        segment: The part of the video to cover.
        first_ms: Presentation time of the first frame, on the clock of `times_ms`; None uses the first keyframe's.
        frames: Number of all frames of the video; None if unknown.
    """
    if times_ms is None or times_ms.size == 0 or not duration_s:
        return KeyframeCoverage(keyframes=keyframes, longest_gap_s=None, cover=None, reasons=(CoverageReason.UNKNOWN,))
    zero_ms = times_ms[0] if first_ms is None else min(first_ms, times_ms[0])
    is_all = len(times_ms) == frames
    times_s, length_s = _within_segment((times_ms - zero_ms) / 1e3, duration_s, segment)
    keyframes = len(times_s)
    gaps_s = np.diff(times_s, prepend=0.0, append=max(length_s, times_s[-1]))
    # Between two keyframes, both stand for what is near them; before the first and after the last, one alone does.
    covered_s = np.minimum(gaps_s, 2 * thresholds.coverage_radius_s)
    covered_s[[0, -1]] = np.minimum(gaps_s[[0, -1]], thresholds.coverage_radius_s)
    gap_s, cover = float(gaps_s.max()), 1.0 if is_all else float(covered_s.sum() / gaps_s.sum())
    reasons = []
    if cover < 1.0:
        found = {
            CoverageReason.ONE_KEYFRAME: keyframes == 1,
            CoverageReason.FEW_KEYFRAMES: 1 < keyframes < thresholds.min_keyframes,
            CoverageReason.LONG_GAP: gap_s > thresholds.max_gap_s,
            CoverageReason.LOW_COVERAGE: cover < thresholds.min_coverage,
        }
        reasons = [reason for reason, applies in found.items() if applies]
    return KeyframeCoverage(keyframes=keyframes, longest_gap_s=gap_s, cover=cover, reasons=tuple(reasons))


def _within_segment(
    times_s: npt.NDArray[np.float64], duration_s: float, segment: Segment
) -> tuple[npt.NDArray[np.float64], float]:
    """Return a segment's keyframe times relative to its start, and its length; earlier keyframes count as at 0."""
    if segment.is_whole:
        return times_s, duration_s
    start_s = segment.start_s or 0.0
    end_s = duration_s if segment.end_s is None else min(segment.end_s, duration_s)
    found = times_s[select_segment(times_s, segment, first_s=0.0).numbers]
    return np.maximum(found - start_s, 0.0), max(end_s - start_s, _MIN_LENGTH_S)
