"""What must be decoded to show some frames."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def spans_to_decode(positions: Iterable[int], keyframes: Sequence[int]) -> list[tuple[int, int]]:
    """Part frames where a decoder can jump from one to a keyframe before the next.

    Args:
        positions: Wanted frames in the linear decode, ascending.
        keyframes: Positions of keyframes, ascending; the first is not after the first wanted frame.

    Returns:
        First and last frame of each run that is decoded whole, the first a keyframe; at most so much is
        decoded, for some codecs let frames be left out that no wanted one needs.
    """
    spans: list[tuple[int, int]] = []
    for position in positions:
        start = keyframes[bisect_right(keyframes, position) - 1]
        if spans and start <= spans[-1][1] + 1:
            spans[-1] = spans[-1][0], position
        else:
            spans.append((start, position))
    return spans
