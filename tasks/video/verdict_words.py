"""Keyframe coverage as sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infra.wording import pluralize
from tasks.video.verdict import CoverageReason

if TYPE_CHECKING:
    from collections.abc import Mapping

DOCS_PAGE = "docs/routing.md"
_DESCRIPTIONS = {
    CoverageReason.ONE_KEYFRAME: "a single keyframe: answers about anything later are guesses",
    CoverageReason.FEW_KEYFRAMES: "few keyframes: what happens between them is not seen",
    CoverageReason.LONG_GAP: "a long gap between keyframes: what happens in it is not seen",
    CoverageReason.THIN_COVER: "no keyframe near most of what happens",
    CoverageReason.UNKNOWN: "no usable index: keyframe coverage is unknown before decoding",
}


def coverage_warnings(verdicts: Mapping[str, int]) -> list[str]:
    """Describe how many videos keyframes may not cover, one sentence per reason.

    Args:
        verdicts: Counts, as returned by `tasks.video.verdict.count_reasons`.
    """
    of = f"of {pluralize(verdicts.get('videos', 0), 'clip')}"
    found = {reason: verdicts[reason] for reason in _DESCRIPTIONS if verdicts.get(reason)}
    return [
        f"{count:,} {of} {'has' if count == 1 else 'have'} {_DESCRIPTIONS[reason]}" for reason, count in found.items()
    ]
