"""Keyframe coverage as sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infra.wording import counted
from tasks.video.verdict import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping

READ_MORE = "docs/routing.md"
_DESCRIPTIONS = {
    Reason.ONE_KEYFRAME: "a single keyframe: answers about anything later are guesses",
    Reason.FEW_KEYFRAMES: "few keyframes: what happens between them is not seen",
    Reason.LONG_GAP: "a long gap between keyframes: what happens in it is not seen",
    Reason.THIN_COVER: "no keyframe near most of what happens",
    Reason.UNKNOWN: "no usable index: keyframe coverage is unknown before decoding",
}


def verdict_lines(verdicts: Mapping[str, int]) -> list[str]:
    """Describe how many videos keyframes may not cover, one sentence per reason.

    Args:
        verdicts: Counts, as returned by `tasks.video.verdict.count_verdicts`.
    """
    of = f"of {counted(verdicts.get('videos', 0), 'clip')}"
    found = {reason: verdicts[reason] for reason in _DESCRIPTIONS if verdicts.get(reason)}
    return [
        f"{count:,} {of} {'has' if count == 1 else 'have'} {_DESCRIPTIONS[reason]}" for reason, count in found.items()
    ]
