"""Verdicts in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infra.wording import counted
from tasks.video.verdict import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping

READ_MORE = "docs/routing.md"
_SAID = {
    Reason.ONE_KEYFRAME: "one keyframe: their answers about what happens later are guesses",
    Reason.FEW_KEYFRAMES: "few keyframes: of what happens between them nothing is seen",
    Reason.LONG_GAP: "nothing of a long stretch: what happens in it is not seen",
    Reason.THIN_COVER: "keyframes far from most of what happens",
    Reason.UNKNOWN: "no index by which their keyframes could be judged before decoding",
}


def verdict_lines(verdicts: Mapping[str, int]) -> list[str]:
    """Say by reason for how many videos keyframes may not have been enough, in a sentence each.

    Args:
        verdicts: As `tasks.video.verdict.count_verdicts` gives them.
    """
    of = f"of {counted(verdicts.get('videos', 0), 'clip')}"
    found = {reason: verdicts[reason] for reason in _SAID if verdicts.get(reason)}
    return [f"{count:,} {of} {'shows' if count == 1 else 'show'} {_SAID[reason]}" for reason, count in found.items()]
