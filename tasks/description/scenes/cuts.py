"""Detects cuts: candidates from the packet list, without decoding, found in the pixels of nearby frames."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tasks.description.embeddings import CutCandidate, Cuts
from tasks.description.scenes.change import SceneChange

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from reelabel.index import VideoIndex
    from tasks.description.scenes.change import Thumbnails
    from tasks.description.scenes.footage import Footage

# Incremented by every change that alters which cuts are found, so that they are detected again.
FINDER_VERSION = 4
REACH = 3  # frames on each side that a cut must exceed, and maximum length of a flash
THRESHOLD = 10.0  # of 255
_LEAST_RATIO = 1.5
_SHIFT = 3  # pixels of a thumbnail
_PIECE = 2048  # frames whose differences are in memory at a time

_SIZE_RATIO = 1.2  # ratio to the 90th percentile of nearby packets that are not keyframes
_LEAST_OF_KEYFRAME = 0.1  # of a keyframe's size; a new picture costs more
_NEARBY = 24  # packets on each side
_AROUND = REACH + 2  # frames on each side; one more, because codecs may put the large packet next to the cut
_ROUNDED_S = 0.001  # maximum error of a time since the first frame if both are in whole milliseconds
_PIECE_FRAMES = 2048  # frames decoded at a time, 8 MiB of thumbnails
_LEAST_APART = 12  # frames from one compared keyframe to the next
_FOR_CONTRAST = 16  # keyframes
_KEYFRAME_DIFFERENCE = 5.0  # of 255
_USUAL_CONTRAST, _LEAST_CONTRAST = 20.0, 0.1
_LUMINANCE = np.array([0.299, 0.587, 0.114], np.float32)
_FIXED_NOTE = "Keyframes are at a fixed distance: candidates come only from their pictures and the sizes of packets."
_CONTRAST_NOTE = "The contrast is low ({contrast:.0f} of 255), so smaller differences count as cuts."


class _PossibleCut(NamedTuple):
    """A candidate, and whether enough frames on both sides were decoded to distinguish it from a flash."""

    candidate: CutCandidate
    is_sure: bool

    @property
    def pts_ms(self) -> int:
        return self.candidate.pts_ms


def cuts_above(cuts: Cuts, threshold: float) -> list[SceneChange]:
    """Return the cuts whose strength is at least a threshold, of 255."""
    return [
        SceneChange(pts_ms=cut.pts_ms, score=round(cut.difference / 255, 4), since_ms=cut.since_ms, kind="cut")
        for cut in cuts.candidates or ()
        if cut.strength >= threshold
    ]


def candidates(packets: VideoIndex, changed: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return possible scene changes: early keyframes, keyframes with a different picture, and large packets.

    `changed` are the positions of keyframes whose picture differs from the previous one's. All positions are in
    presentation order, ascending; the first frame is never one; shape (M,), int64.
    """
    sizes, is_keyframe = packets.sizes_bytes, packets.shown_keyframes
    floor = _LEAST_OF_KEYFRAME * float(np.median(sizes[is_keyframe])) if is_keyframe.any() else 0.0
    # Keyframes are always large: their size shows nothing, and with short GOPs it would hide real candidates.
    others = np.where(is_keyframe, np.nan, sizes)
    is_large = others > np.maximum(floor, _SIZE_RATIO * _percentiles(others))
    is_large[:1] = False
    found = np.concatenate([np.flatnonzero(is_large), early_keyframes(packets), changed])
    return np.unique(found).astype(np.int64)


def early_keyframes(packets: VideoIndex) -> npt.NDArray[np.int64]:
    """Return the positions of keyframes that end a GOP before its maximum length; ascending."""
    keyframes = np.flatnonzero(packets.shown_keyframes)
    gops = np.diff(keyframes)
    longest = gops.max(initial=0)
    is_limit = (gops == longest).sum() > 1  # the encoder's own; otherwise the longest GOP ends at a cut as well
    found: npt.NDArray[np.int64] = keyframes[1:][(gops < longest) | (not is_limit)]
    return found if has_early_keyframes(packets) else keyframes[:0]


def has_early_keyframes(packets: VideoIndex) -> bool:
    """Return whether the encoder placed keyframes at cuts, and not only at a fixed distance."""
    gops = np.diff(np.flatnonzero(packets.shown_keyframes))
    return bool(len(gops) > 1 and (gops[:-1] != gops[0]).any()) or bool(len(gops) == 1)


def _percentiles(sizes: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the 90th percentile of the sizes around each packet, excluding itself and NaN; shape (N,)."""
    padded = np.pad(sizes, _NEARBY, constant_values=np.nan)
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
    """Ranges of frames that are decoded together, and the positions between which their cuts are used.

    A cut outside these positions is covered better by another piece.
    """

    ranges: tuple[tuple[int, int], ...]
    first: int
    stop: int


def _pieces(ranges: Sequence[tuple[int, int]]) -> Iterator[_Piece]:
    """Split ranges into pieces of bounded size, which overlap by the frames needed to verify a cut."""
    waiting: list[tuple[int, int]] = []
    for start, end in ranges:
        frames = sum(last + 1 - first for first, last in waiting)
        if waiting and frames + end + 1 - start > _PIECE_FRAMES:
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


class _Keyframes(NamedTuple):
    """Comparison of a video's keyframes, each of which is decoded separately."""

    changed: npt.NDArray[np.int64]  # positions of those whose picture differs from the previous one's; ascending
    contrast: float  # standard deviation of their luminance over all pixels, of 255


def _compare_keyframes(footage: Footage) -> _Keyframes:
    """Decode the keyframes that are not yet candidates, and compare each with the previous one.

    A few more, at some distance from each other, are decoded for the contrast.
    """
    packets = footage.packets()
    keyframes = np.flatnonzero(packets.shown_keyframes)
    if not len(keyframes):
        return _Keyframes(keyframes, _USUAL_CONTRAST)
    is_early = np.isin(keyframes, early_keyframes(packets))
    is_wanted = ~is_early | ~np.append(is_early[1:], True)
    is_wanted[:: max(1, len(keyframes) // _FOR_CONTRAST)] = True
    since_s = packets.times_ms[_spaced(keyframes[is_wanted])] / 1000
    pieces = [
        footage.thumbnails(tuple((max(0.0, at - _ROUNDED_S), at + _ROUNDED_S) for at in part.tolist()))
        for part in np.split(since_s, range(_PIECE_FRAMES, len(since_s), _PIECE_FRAMES))
    ]
    images = np.concatenate([piece.images for piece in pieces])
    positions = np.searchsorted(packets.times_ms, np.concatenate([piece.times_ms for piece in pieces]) - 1)
    contrast = float((images @ _LUMINANCE).std())
    least = _KEYFRAME_DIFFERENCE * relative_contrast(contrast)
    changed = [
        keyframes[(keyframes > positions[at - 1]) & (keyframes <= positions[at])]
        for at in np.flatnonzero(differences(images) >= least)
    ]
    return _Keyframes(np.concatenate([keyframes[:0], *changed]), contrast)


def _spaced(keyframes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return some keyframes that are at least a few frames apart, for videos that consist of keyframes."""
    chosen: list[int] = []
    for position in keyframes.tolist():
        if not chosen or position - chosen[-1] >= _LEAST_APART:
            chosen.append(position)
    return np.array(chosen, np.int64)


def relative_contrast(contrast: float) -> float:
    """Return the contrast of a video relative to a usual one, at most 1, to scale differences."""
    return min(1.0, max(_LEAST_CONTRAST, contrast / _USUAL_CONTRAST))


def find_cuts(footage: Footage) -> Cuts:
    """Find the cuts of a video in the frames around each candidate, in pieces of bounded size.

    Raises:
        SceneMethodError: The video does not list its packets, or cannot be read in ranges.
        VideoError: The video cannot be decoded.
    """
    packets, keyframes = footage.packets(), _compare_keyframes(footage)
    unit = relative_contrast(keyframes.contrast)
    found = _verify(footage, candidates(packets, keyframes.changed), unit)
    unsure = [cut.pts_ms for cut in found if not cut.is_sure]
    found += _verify(footage, np.searchsorted(packets.times_ms, np.array(unsure, np.int64) - 1), unit)
    cuts = {cut.pts_ms: cut.candidate for cut in found if cut.is_sure}
    notes = [] if has_early_keyframes(packets) else [_FIXED_NOTE]
    if unit < 1:
        notes.append(_CONTRAST_NOTE.format(contrast=keyframes.contrast))
    return Cuts(candidates=tuple(cuts[at] for at in sorted(cuts)), note=" ".join(notes))


def _verify(footage: Footage, positions: npt.NDArray[np.int64], unit: float) -> list[_PossibleCut]:
    """Decode frames around ascending positions, in pieces of bounded size; return the possible cuts among them."""
    packets, cuts = footage.packets(), list[_PossibleCut]()
    times_ms, since_s, gaps_ms = packets.times_ms, packets.times_ms / 1000, np.diff(packets.times_ms)
    gap_ms = 2.5 * float(np.median(gaps_ms)) if len(gaps_ms) else np.inf  # beyond it, frames may not be consecutive
    for piece in _pieces(ranges_around(packets, positions)):
        windows = tuple(
            (max(0.0, float(since_s[start]) - _ROUNDED_S), float(since_s[end]) + _ROUNDED_S)
            for start, end in piece.ranges
        )
        found = _cuts_in(footage.thumbnails(windows), gap_ms=gap_ms, packets_ms=times_ms, unit=unit)
        first_ms, stop_ms = (_border_ms(times_ms, position) for position in (piece.first, piece.stop))
        cuts += [cut for cut in found if first_ms <= cut.pts_ms < stop_ms]
    return cuts


def _border_ms(times_ms: npt.NDArray[np.int64], position: int) -> float:
    """Return a time between a frame and the one before it."""
    if position <= 0 or position >= len(times_ms):
        return -np.inf if position <= 0 else np.inf
    return float(times_ms[position - 1] + times_ms[position]) / 2


def differences(images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Return how much each frame differs from the one before it, given RGB pixels of shape (N, H, W, 3).

    These are mean absolute differences, of 255; 0 for the first frame; shape (N,), float32.
    """
    found = np.zeros(len(images), np.float32)
    for start in range(1, len(images), _PIECE):
        piece = images[start - 1 : start + _PIECE].astype(np.int16)
        found[start : start + _PIECE] = np.abs(np.diff(piece, axis=0)).mean((1, 2, 3))
    return found


def _cuts_in(
    thumbnails: Thumbnails, *, gap_ms: float, packets_ms: npt.NDArray[np.int64], unit: float
) -> list[_PossibleCut]:
    """Find the possible cuts among frames, some of which are consecutive.

    The difference at a cut exceeds all others nearby, unlike fast motion, and the pictures do not return to what they
    were, unlike after a flash. Its strength is the smallest difference when the pictures are shifted against each
    other, which is small for a camera jerk. Beyond `gap_ms`, two frames are consecutive only if no packet, of those at
    `packets_ms`, is between them; `unit` is the contrast of the video, relative to a usual one.
    """
    times = thumbnails.times_ms
    # While a picture does not change, as on a still screen, the next packet comes late.
    between = np.searchsorted(packets_ms, times[1:] - 1) - np.searchsorted(packets_ms, times[:-1] + 1, side="right")
    edges = np.flatnonzero((np.diff(times) > gap_ms) & (between > 0)) + 1
    found: list[_PossibleCut] = []
    for start, end in zip([0, *edges.tolist()], [*edges.tolist(), len(times)], strict=True):
        # If frames are missing on a side, a flash cannot be distinguished from a cut, except at the ends of the video.
        first = 1 if times[start] <= packets_ms[0] + 1 else REACH + 1
        stop = end - start - (0 if times[end - 1] >= packets_ms[-1] - 1 else REACH)
        found += _cuts_of_run(thumbnails.images[start:end], times[start:end], range(first, stop), unit)
    return found


def _cuts_of_run(
    images: npt.NDArray[np.uint8], times_ms: npt.NDArray[np.int64], sure: range, unit: float
) -> list[_PossibleCut]:
    steps = differences(images)
    found = []
    for at in np.flatnonzero(steps >= _LEAST_RATIO * unit).tolist():
        if _stands_out(steps, at, unit) and not _is_flash(images, at, float(steps[at])):
            strength = min(float(steps[at]), _shifted(images[at - 1], images[at])) / unit
            cut = CutCandidate(int(times_ms[at]), int(times_ms[at - 1]), float(steps[at]), strength)
            found.append(_PossibleCut(cut, at in sure))
    return found


def _stands_out(steps: npt.NDArray[np.float32], at: int, unit: float) -> bool:
    nearby = np.concatenate([steps[max(1, at - REACH) : at], steps[at + 1 : at + 1 + REACH]])
    return bool(steps[at] >= _LEAST_RATIO * (nearby.max(initial=0.0) + unit))


def _shifted(before: npt.NDArray[np.uint8], after: npt.NDArray[np.uint8]) -> float:
    """Return the smallest mean difference of two frames shifted against each other; infinite if they are too small."""
    height, width = (side - 2 * _SHIFT for side in before.shape[:2])
    if min(height, width) < 1:
        return math.inf
    middle = before[_SHIFT : _SHIFT + height, _SHIFT : _SHIFT + width].astype(np.int16)
    shifted = np.lib.stride_tricks.sliding_window_view(after.astype(np.int16), middle.shape)
    return float(np.abs(shifted - middle).mean((3, 4, 5)).min())


def _is_flash(images: npt.NDArray[np.uint8], at: int, step: float) -> bool:
    """Return whether the pictures before and after the frames nearby are the same scene."""
    before, after = images[max(0, at - REACH - 1) : at].astype(np.int16), images[at : at + REACH + 1].astype(np.int16)
    returns = np.abs(after[1:] - before[-1]).mean((1, 2, 3))
    came_back = np.abs(before[:-1] - after[0]).mean((1, 2, 3))
    return bool(min(returns.min(initial=np.inf), came_back.min(initial=np.inf)) < step / 2)
