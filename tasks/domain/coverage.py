"""How many videos of a run keyframes may not cover: counts by reason, and warnings about them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from reelabel.coverage import CoverageReason
from reelabel.text import pluralize

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

DOCS_PAGE = "docs/frames.md"
_ANY_REASON = "not_covered"
_DESCRIPTIONS = {
    CoverageReason.ONE_KEYFRAME: "a single keyframe: answers about anything later are guesses",
    CoverageReason.FEW_KEYFRAMES: "few keyframes: what happens between them is not seen",
    CoverageReason.LONG_GAP: "a long gap between keyframes: what happens in it is not seen",
    CoverageReason.LOW_COVERAGE: "no keyframe near most of what happens",
    CoverageReason.UNKNOWN: "keyframes at unknown times: what happens between them may not be seen",
}


def count_reasons(coverages: Iterable[str]) -> dict[str, int]:
    """Count comma-separated reason codes: all videos as `videos`, those with any reason, and those by reason."""
    counts = Counter[str]()
    for coverage in coverages:
        counts["videos"] += 1
        if coverage:
            counts.update([_ANY_REASON, *coverage.split(",")])
    return dict(counts)


def coverage_warnings(counts: Mapping[str, int]) -> list[str]:
    """Describe how many videos keyframes may not cover, one sentence per reason, and how many in all."""
    of = f"of {pluralize(counts.get('videos', 0), 'clip')}"
    found = {reason: counts[reason] for reason in _DESCRIPTIONS if counts.get(reason)}
    lines = [
        f"{count:,} {of} {'has' if count == 1 else 'have'} {_DESCRIPTIONS[reason]}" for reason, count in found.items()
    ]
    affected = counts.get(_ANY_REASON, 0)
    overlap = 0 < affected < sum(found.values())
    return [*lines, f"{affected:,} {of} in all: some have several of these faults"] if overlap else lines
