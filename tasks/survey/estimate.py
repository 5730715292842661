"""Shares and totals of all clips, from a random sample without replacement, with 95% confidence intervals."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from tasks.evaluation.significance import Z

if TYPE_CHECKING:
    from collections.abc import Sequence

METHOD = (
    "95% intervals: for shares, Wilson's score interval; for totals, the normal approximation; both with the "
    "correction for a finite population."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A figure, and its 95% confidence interval, which has no width if every clip was looked at."""

    value: float
    low: float
    high: float

    @property
    def is_exact(self) -> bool:
        """Whether it is counted, not estimated."""
        return self.low == self.high


def estimate_share(found: int, seen: int, of: int) -> Estimate:
    """Estimate how many of all clips have a property that was found in a sample of at least one.

    Wilson's score interval (1927), for a sample of the size that would be as exact without the correction for a finite
    population, (N - n) / (N - 1).
    """
    if seen >= of:
        return Estimate(value=found, low=found, high=found)
    share, size = found / seen, seen * (of - 1) / (of - seen)
    centre = (share + Z**2 / (2 * size)) / (1 + Z**2 / size)
    half = Z / (1 + Z**2 / size) * sqrt(share * (1 - share) / size + Z**2 / (4 * size**2))
    # What was seen is certain.
    low, high = max(found, of * (centre - half)), min(of - (seen - found), of * (centre + half))
    value = share * of
    return Estimate(value=value, low=min(low, value), high=max(high, value))  # whatever rounding does at the ends


def estimate_total(values: Sequence[float], of: int) -> Estimate | None:
    """Estimate the total of a figure over all clips, from that of each clip of a sample.

    The mean times their number, with the standard error of a simple random sample, corrected for a finite population
    (Cochran, Sampling Techniques, 1977, section 2.8). None if the sample tells nothing of its error: without clips, or
    with one that is not all.
    """
    seen, total = len(values), float(np.sum(values))
    if seen >= of:
        return Estimate(value=total, low=total, high=total) if seen else None
    if seen < 2:  # noqa: PLR2004 - which have a variance
        return None
    value = total / seen * of
    half = Z * of * float(np.std(values, ddof=1)) * sqrt((1 - seen / of) / seen)
    return Estimate(value=value, low=max(total, value - half), high=value + half)
