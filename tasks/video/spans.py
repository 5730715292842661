"""The runs of frames to decode for a set of wanted frames."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def spans_to_decode(positions: Iterable[int], keyframes: Sequence[int]) -> list[tuple[int, int]]:
    """Split wanted frames into runs between which a decoder can seek to a keyframe.

    Args:
        positions: Positions of wanted frames in the linear decode, ascending.
        keyframes: Positions of keyframes, ascending; the first is not after the first wanted frame.

    Returns:
        First and last frame of each run, the first being a keyframe. That is the most to be decoded: in some codecs,
        frames on which no wanted one depends can be skipped.
    """
    spans: list[tuple[int, int]] = []
    for position in positions:
        start = keyframes[bisect_right(keyframes, position) - 1]
        if spans and start <= spans[-1][1] + 1:
            spans[-1] = spans[-1][0], position
        else:
            spans.append((start, position))
    return spans
