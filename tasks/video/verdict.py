"""Whether a video's keyframes show enough of it, by where they stand alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Self

import numpy as np

from tasks.domain.segment import WHOLE
from tasks.video.cut import cut

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

    from tasks.domain.segment import Segment


_SHORTEST_S = 1e-3


class Reason(StrEnum):
    """Why keyframes may not be enough; codes never change once released."""

    ONE_KEYFRAME = "one_keyframe"
    FEW_KEYFRAMES = "few_keyframes"
    LONG_GAP = "long_gap"
    THIN_COVER = "thin_cover"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """From where on keyframes are not enough.

    Attributes:
        min_keyframes: Fewest of them.
        max_gap_s: Longest time without one.
        coverage_radius_s: Seconds within which a keyframe stands for what is shown.
        min_coverage: Least share of the video for which one does, 0 to 1.
    """

    min_keyframes: int = 4
    max_gap_s: float = 2.5
    coverage_radius_s: float = 0.5
    min_coverage: float = 0.4

    @classmethod
    def of(cls, options: object) -> Self:
        """Take those that some options set, by their names here; None leaves one as it usually is."""
        given = {each.name: getattr(options, each.name, None) for each in fields(cls)}
        return cls(**{name: value for name, value in given.items() if value is not None})


USUAL = Thresholds()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the keyframes of one video are good for.

    Attributes:
        keyframes: How many there are.
        longest_gap_s: Longest time without one, up to the video's end; None where unknown.
        cover: Share of the video within `coverage_radius_s` of one, 0 to 1; None where unknown.
        reasons: Why they may not be enough; none where they are.
    """

    keyframes: int
    longest_gap_s: float | None
    cover: float | None
    reasons: tuple[Reason, ...]

    @property
    def is_good(self) -> bool:
        """Whether nothing speaks against them."""
        return not self.reasons


def judge(
    times_ms: npt.NDArray[np.int64] | None,
    *,
    keyframes: int,
    duration_s: float,
    thresholds: Thresholds,
    segment: Segment = WHOLE,
    first_ms: int | None = None,
) -> Verdict:
    """Judge a video, or a part of it, by its keyframes.

    Where every instant is near a keyframe, it does not matter how few they are.

    Args:
        times_ms: When each is shown, ascending; shape (K,); None where unknown.
        keyframes: How many there are, where their times are unknown.
        duration_s: Length of the video; 0.0 where unknown.
        thresholds: What is enough.
        segment: The part of the video that is asked about.
        first_ms: When the first frame is shown, by the clock of `times_ms`; None takes the first keyframe's.
    """
    if times_ms is None or times_ms.size == 0 or not duration_s:
        return Verdict(keyframes=keyframes, longest_gap_s=None, cover=None, reasons=(Reason.UNKNOWN,))
    zero_ms = times_ms[0] if first_ms is None else min(first_ms, times_ms[0])
    times_s, length_s = _of_segment((times_ms - zero_ms) / 1e3, duration_s, segment)
    keyframes = len(times_s)
    gaps_s = np.diff(times_s, prepend=0.0, append=max(length_s, times_s[-1]))
    # Between two keyframes, both stand for what is near them; before the first and after the last, one alone does.
    covered_s = np.minimum(gaps_s, 2 * thresholds.coverage_radius_s)
    covered_s[[0, -1]] = np.minimum(gaps_s[[0, -1]], thresholds.coverage_radius_s)
    gap_s, cover = float(gaps_s.max()), float(covered_s.sum() / gaps_s.sum())
    reasons = []
    if cover < 1.0:
        found = {
            Reason.ONE_KEYFRAME: keyframes == 1,
            Reason.FEW_KEYFRAMES: 1 < keyframes < thresholds.min_keyframes,
            Reason.LONG_GAP: gap_s > thresholds.max_gap_s,
            Reason.THIN_COVER: cover < thresholds.min_coverage,
        }
        reasons = [reason for reason, holds in found.items() if holds]
    return Verdict(keyframes=keyframes, longest_gap_s=gap_s, cover=cover, reasons=tuple(reasons))


def _of_segment(
    times_s: npt.NDArray[np.float64], duration_s: float, segment: Segment
) -> tuple[npt.NDArray[np.float64], float]:
    """Give the keyframes of a segment since its start, and its length; one from before it stands at its start."""
    if segment.is_whole:
        return times_s, duration_s
    start_s = segment.start_s or 0.0
    end_s = duration_s if segment.end_s is None else min(segment.end_s, duration_s)
    found = times_s[cut(times_s, segment, first_s=0.0).numbers]
    return np.maximum(found - start_s, 0.0), max(end_s - start_s, _SHORTEST_S)


def count_verdicts(verdicts: Iterable[str]) -> dict[str, int]:
    """Count verdicts, each as its reasons' codes by commas: all of them as `videos`, and each reason."""
    counts = Counter[str]()
    for verdict in verdicts:
        counts["videos"] += 1
        counts.update(filter(None, verdict.split(",")))
    return dict(counts)
