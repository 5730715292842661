"""Candidates that cost no decoding, each checked in the pixels of the frames around it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tasks.description.scenes.change import IndexLook, PossibleCut, SceneChanges
from tasks.description.scenes.detector import SceneDetector
from tasks.description.scenes.evidence import require_footage
from tasks.description.scenes.pixels import REACH, THRESHOLD, cuts_of, find_possible_cuts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from reelabel.index import VideoIndex
    from tasks.description.scenes.change import Evidence, Footage

_SIZE_RATIO = 1.2  # to the 90th percentile of the packets nearby
_KEYFRAME_RATIO = 1.1  # of one keyframe's size to the last one's
_LEAST_OF_KEYFRAME = 0.1  # of a keyframe's size; a new picture costs more
_NEARBY = 24  # packets on each side
_AROUND = REACH + 2  # frames on each side; one more, as codecs may put the large packet next to the cut
_ROUNDED_S = 0.001  # by which a time since the first frame is off if both are listed in whole milliseconds
_PIECE_FRAMES = 2048  # that are decoded at once, 8 MiB of thumbnails
_NOTE = "Keyframes come at a fixed distance, so only the sizes of packets showed where to look."


def candidates(packets: VideoIndex) -> npt.NDArray[np.int64]:
    """Return where scenes may change: at early keyframes, or else at unlike ones, and at packets that are large nearby.

    Returns:
        Positions in presentation order, ascending, without the first frame; shape (M,), int64.
    """
    sizes = packets.sizes_bytes
    keyframes = sizes[packets.shown_keyframes]
    floor = _LEAST_OF_KEYFRAME * float(np.median(keyframes)) if len(keyframes) else 0.0
    is_large = sizes > np.maximum(floor, _SIZE_RATIO * _percentiles(sizes))
    is_large[:1] = False
    is_large &= ~packets.shown_keyframes  # which are always large
    keyframes = early_keyframes(packets) if has_early_keyframes(packets) else _unlike_keyframes(packets)
    found: npt.NDArray[np.int64] = np.union1d(np.flatnonzero(is_large), keyframes).astype(np.int64)
    return found


def early_keyframes(packets: VideoIndex) -> npt.NDArray[np.int64]:
    """Return the keyframes that come sooner after the last one than the limit of a GOP; their positions, ascending."""
    keyframes = np.flatnonzero(packets.shown_keyframes)
    gops = np.diff(keyframes)
    longest = gops.max(initial=0)
    is_limit = (gops == longest).sum() > 1  # the encoder's own; otherwise the longest GOP ends at a cut as well
    found: npt.NDArray[np.int64] = keyframes[1:][(gops < longest) | (not is_limit)]
    return found if has_early_keyframes(packets) else keyframes[:0]


def _unlike_keyframes(packets: VideoIndex) -> npt.NDArray[np.int64]:
    """Return the keyframes of another size than the last one, as a fixed distance may put them where a scene begins."""
    keyframes = np.flatnonzero(packets.shown_keyframes)
    sizes = np.maximum(1, packets.sizes_bytes[keyframes]).astype(np.float64)
    found: npt.NDArray[np.int64] = keyframes[1:][np.abs(np.diff(np.log(sizes))) > np.log(_KEYFRAME_RATIO)]
    return found


def has_early_keyframes(packets: VideoIndex) -> bool:
    """Return whether the encoder has put keyframes where it saw cuts, and not only at a fixed distance."""
    gops = np.diff(np.flatnonzero(packets.shown_keyframes))
    return bool(len(gops) > 1 and (gops[:-1] != gops[0]).any()) or bool(len(gops) == 1)


def _percentiles(sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return the 90th percentile of the packets around each one, without itself; shape (N,)."""
    padded = np.pad(sizes.astype(np.float64), _NEARBY, constant_values=np.nan)
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * _NEARBY + 1)
    found = np.empty(len(sizes))
    step = 65_536
    for start in range(0, len(sizes), step):
        piece = np.delete(windows[start : start + step], _NEARBY, axis=1)
        found[start : start + step] = _nan_percentile(np.sort(piece, axis=1))  # NaN comes last
    return found


def _nan_percentile(ascending: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    counts = (~np.isnan(ascending)).sum(axis=1)
    ranks = np.maximum(0, np.ceil(0.9 * counts).astype(np.int64) - 1)
    found = ascending[np.arange(len(ascending)), ranks]
    return np.where(counts > 0, found, np.inf)


def ranges_around(packets: VideoIndex, positions: npt.NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return the first and the last of the frames around some positions, merged where they touch."""
    last = len(packets.order) - 1
    ranges: list[tuple[int, int]] = []
    for position in positions.tolist():
        start, end = max(0, position - _AROUND), min(last, position + _AROUND)
        if ranges and start <= ranges[-1][1] + 1:
            ranges[-1] = ranges[-1][0], end
        else:
            ranges.append((start, end))
    return ranges


class _Piece(NamedTuple):
    """Frames that are decoded at once: their ranges; and the positions from which on and before which cuts are taken.

    A cut outside of them is seen better in another piece.
    """

    ranges: tuple[tuple[int, int], ...]
    first: int
    stop: int


def _pieces(ranges: Sequence[tuple[int, int]]) -> Iterator[_Piece]:
    """Cut ranges into pieces of bounded size; where one is cut, the pieces overlap by what a cut is judged by."""
    waiting: list[tuple[int, int]] = []
    for start, end in ranges:
        held = sum(last + 1 - first for first, last in waiting)
        if waiting and held + end + 1 - start > _PIECE_FRAMES:
            yield _Piece(tuple(waiting), waiting[0][0], waiting[-1][1] + 1)
            waiting = []
        if end + 1 - start <= _PIECE_FRAMES:
            waiting.append((start, end))
            continue
        for first in range(start, end + 1, _PIECE_FRAMES):
            stop = min(first + _PIECE_FRAMES, end + 1)
            yield _Piece(((max(start, first - _AROUND), min(end, stop - 1 + _AROUND)),), first, stop)
    if waiting:
        yield _Piece(tuple(waiting), waiting[0][0], waiting[-1][1] + 1)


def frame_gap_ms(packets: VideoIndex) -> float:
    """Return the time beyond which two frames may not follow each other."""
    gaps = np.diff(packets.times_ms)
    return 2.5 * float(np.median(gaps)) if len(gaps) else np.inf


def look_at_candidates(footage: Footage) -> IndexLook:
    """Look at the frames around each candidate, in pieces of bounded size.

    Raises:
        SceneMethodError: The video does not list its packets, or cannot be read in ranges.
        VideoError: It cannot be decoded.
    """
    packets = footage.packets()
    times_ms = packets.times_ms
    since_s = (times_ms - times_ms[0]) / 1000
    gap_ms, cuts = frame_gap_ms(packets), list[PossibleCut]()
    for piece in _pieces(ranges_around(packets, candidates(packets))):
        windows = tuple(
            (max(0.0, float(since_s[start]) - _ROUNDED_S), float(since_s[end]) + _ROUNDED_S)
            for start, end in piece.ranges
        )
        found = find_possible_cuts(footage.thumbnails(windows), gap_ms=gap_ms, packets_ms=times_ms)
        first_ms, stop_ms = (_border_ms(packets, position) for position in (piece.first, piece.stop))
        cuts += [cut for cut in found if first_ms <= cut.pts_ms < stop_ms]
    return IndexLook(cuts=tuple(cuts), note="" if has_early_keyframes(packets) else _NOTE)


def _border_ms(packets: VideoIndex, position: int) -> float:
    """Return a time between a frame and the one before it."""
    if position <= 0 or position >= len(packets.order):
        return -np.inf if position <= 0 else np.inf
    return float(packets.times_ms[position - 1] + packets.times_ms[position]) / 2


def _detect(evidence: Evidence, threshold: float) -> SceneChanges:
    look = evidence.look() if evidence.look else look_at_candidates(require_footage(evidence, "index"))
    return SceneChanges(changes=tuple(cuts_of(look.cuts, threshold)), method="index", note=look.note)


INDEX = SceneDetector(
    name="index",
    summary="early keyframes and large packets, each checked in the frames around it",
    needs=frozenset({"index"}),
    threshold=THRESHOLD,
    detect=_detect,
)
