"""Candidates that cost no decoding, each checked in the pixels of the frames around it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tasks.description.scenes.change import SceneChanges, SceneMethodError
from tasks.description.scenes.detector import SceneDetector
from tasks.description.scenes.pixels import REACH, THRESHOLD, find_cuts

if TYPE_CHECKING:
    import numpy.typing as npt

    from reelabel.packet_list import PacketList
    from reelabel.segment import Windows
    from tasks.description.scenes.change import Evidence, Footage

_SIZE_RATIO = 1.2  # to the 90th percentile of the packets nearby
_KEYFRAME_RATIO = 1.1  # of one keyframe's size to the last one's
_LEAST_OF_KEYFRAME = 0.1  # of a keyframe's size; a new picture costs more
_NEARBY = 24  # packets on each side
_AROUND = REACH + 2  # frames on each side; one more, as codecs may put the large packet next to the cut
_NOTE = "Keyframes come at a fixed distance, so that only the sizes of packets told where to look."


def candidates(packets: PacketList) -> npt.NDArray[np.int64]:
    """Return where scenes may change: at early keyframes, or else at unlike ones, and at packets that are large nearby.

    Returns:
        Positions in presentation order, ascending, without the first frame; shape (M,), int64.
    """
    sizes = packets.sizes_bytes
    keyframes = sizes[packets.is_keyframe]
    floor = _LEAST_OF_KEYFRAME * float(np.median(keyframes)) if len(keyframes) else 0.0
    is_large = sizes > np.maximum(floor, _SIZE_RATIO * _percentiles(sizes))
    is_large[:1] = False
    is_large &= ~packets.is_keyframe  # which are always large
    keyframes = early_keyframes(packets) if has_early_keyframes(packets) else _unlike_keyframes(packets)
    found: npt.NDArray[np.int64] = np.union1d(np.flatnonzero(is_large), keyframes).astype(np.int64)
    return found


def early_keyframes(packets: PacketList) -> npt.NDArray[np.int64]:
    """Return the keyframes that come sooner after the last one than the limit of a GOP; their positions, ascending."""
    keyframes = np.flatnonzero(packets.is_keyframe)
    gops = np.diff(keyframes)
    longest = gops.max(initial=0)
    is_limit = (gops == longest).sum() > 1  # the encoder's own; otherwise the longest GOP ends at a cut as well
    found: npt.NDArray[np.int64] = keyframes[1:][(gops < longest) | (not is_limit)]
    return found if has_early_keyframes(packets) else keyframes[:0]


def _unlike_keyframes(packets: PacketList) -> npt.NDArray[np.int64]:
    """Return the keyframes of another size than the last one, as a fixed distance may put them where a scene begins."""
    keyframes = np.flatnonzero(packets.is_keyframe)
    sizes = np.maximum(1, packets.sizes_bytes[keyframes]).astype(np.float64)
    found: npt.NDArray[np.int64] = keyframes[1:][np.abs(np.diff(np.log(sizes))) > np.log(_KEYFRAME_RATIO)]
    return found


def has_early_keyframes(packets: PacketList) -> bool:
    """Return whether the encoder has put keyframes where it saw cuts, and not only at a fixed distance."""
    gops = np.diff(np.flatnonzero(packets.is_keyframe))
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


def windows_around(packets: PacketList, positions: npt.NDArray[np.int64]) -> Windows:
    """Return the times of the frames around some positions, merged where they touch, in seconds since the first."""
    if not len(positions):
        return ()
    last = len(packets.times_ms) - 1
    seconds = (packets.times_ms - packets.times_ms[0]) / 1000
    windows: list[tuple[int, int]] = []
    for position in positions.tolist():
        start, end = max(0, position - _AROUND), min(last, position + _AROUND)
        if windows and start <= windows[-1][1] + 1:
            windows[-1] = windows[-1][0], end
        else:
            windows.append((start, end))
    return tuple((float(seconds[start]), float(seconds[end])) for start, end in windows)


def frame_gap_ms(packets: PacketList) -> float:
    """Return the time beyond which two frames do not follow each other."""
    gaps = np.diff(packets.times_ms)
    return 2.5 * float(np.median(gaps)) if len(gaps) else np.inf


def require_footage(evidence: Evidence, method: str) -> Footage:
    """Return the video.

    Raises:
        SceneMethodError: Only its embeddings are at hand.
    """
    if evidence.footage is None:
        raise SceneMethodError(f"The scene method {method} needs the video, and only its embeddings are at hand.")
    return evidence.footage


def _detect(evidence: Evidence, threshold: float) -> SceneChanges:
    footage = require_footage(evidence, "index")
    packets = footage.packets()
    note = "" if has_early_keyframes(packets) else _NOTE
    windows = windows_around(packets, candidates(packets))
    if not windows:
        return SceneChanges(changes=(), method="index", note=note)
    found = find_cuts(footage.thumbnails(windows), gap_ms=frame_gap_ms(packets), threshold=threshold)
    return SceneChanges(changes=tuple(found), method="index", note=note)


INDEX = SceneDetector(
    name="index",
    summary="early keyframes and large packets, each checked in the frames around it",
    needs=frozenset({"index"}),
    threshold=THRESHOLD,
    detect=_detect,
)
