"""Comparison of extracted frames with a linear decode."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from benchmarks.exactness.linear import digest_pixels

if TYPE_CHECKING:
    from benchmarks.exactness.linear import LinearDecode
    from reelabel.result import Frames

_MAX_FAULTS = 5
_SEVERITY = ("pixels", "facts", "counts")


class Disagreement(NamedTuple):
    """One difference from the linear decode.

    Attributes:
        about: `pixels` that the linear decode does not show at that time; `facts` of a frame or of the choice, such as
            a time, an index, a flag or the order; `counts` of the whole file.
        text: What differs, and where.
    """

    about: Literal["pixels", "facts", "counts"]
    text: str


def disagreements(got: Frames, linear: LinearDecode, *, num_frames: int | None) -> list[Disagreement]:
    """Compare native frames with the linear decode of the same file.

    A frame must have the pixels and the timestamp of a frame of that; its index, if it has one, must be that frame's.
    Frames must be in the order of the linear decode, which no timestamp decides, at times that never fall.

    Two differences are of the counts alone, as they follow from damage that only a linear decode meets. An index counts
    the frames that the file lists: where a decoder refuses some of them, it may differ by as many. And a keyframe that
    is decoded on its own may be shown although the linear decode, still in error from what came before, refuses it.

    Args:
        got: Frames extracted with `as_stored=True`.
        linear: Every frame of the same bytes.
        num_frames: Number of requested picks; None for every keyframe.

    Returns:
        The first few differences, the most severe first; empty where there is none.
    """
    rows = [row for row in range(len(got.unique)) if not _is_refused_keyframe(got, row, linear)]
    refused = len(got.unique) - len(rows)
    faults = [Disagreement("counts", f"the linear decode refuses {refused} keyframes")] if refused else []
    faults += [fault for row in rows for fault in _row_faults(got, row, linear)]
    faults += _completeness_faults(got, rows, linear) if num_frames is None else _pick_faults(got, num_frames)
    faults += [Disagreement("facts", fault) for fault in _order_faults(got, rows, linear)]
    faults += [Disagreement("counts", fault) for fault in _count_faults(got, linear)]
    return sorted(faults, key=lambda fault: _SEVERITY.index(fault.about))[:_MAX_FAULTS]


def _is_refused_keyframe(got: Frames, row: int, linear: LinearDecode) -> bool:
    pts = int(got.selection.pts[row])
    is_shown = any(frame.pts == pts for frame in linear.frames)
    return bool(got.selection.is_keyframe[row]) and pts in linear.refused and not is_shown


def _row_faults(got: Frames, row: int, linear: LinearDecode) -> list[Disagreement]:
    index, pts = int(got.selection.frame_index[row]), int(got.selection.pts[row])
    where = f"row {row} (frame {index}, pts {pts})"
    digest = digest_pixels(got.unique[row])
    same = [at for at, frame in enumerate(linear.frames) if frame.digest == digest and frame.pts in {pts, None}]
    if not same:
        return [_pixels(where, linear, pts)]
    near = [at for at in same if _counts_to(index, at, got, linear)]
    if index >= 0 and not near:
        return [Disagreement("facts", f"{where}: the linear decode shows it as frame {same[0]}")]
    positions = near if index >= 0 else same
    return [Disagreement("facts", f"{where}: {fault}") for fault in _fact_faults(got, row, linear, positions)]


def _counts_to(index: int, position: int, got: Frames, linear: LinearDecode) -> bool:
    """Return whether an index may be of the frame at this position of the linear decode."""
    unshown = (got.selection.total_frames or len(linear.frames)) - len(linear.frames)
    return position + min(0, unshown) <= index <= position + max(0, unshown)


def _pixels(where: str, linear: LinearDecode, pts: int) -> Disagreement:
    shown = [at for at, frame in enumerate(linear.frames) if frame.pts == pts]
    text = f"its pixels are not those of frames {shown}" if shown else "the linear decode shows no frame at that time"
    return Disagreement("pixels", f"{where}: {text}")


def _fact_faults(got: Frames, row: int, linear: LinearDecode, positions: list[int]) -> list[str]:
    frame = linear.frames[positions[0]]
    faults = []
    is_timed = frame.pts is not None and linear.are_times_ordered
    if is_timed and not np.isclose(got.selection.time_s[row], (frame.pts or 0) * linear.time_base_s):
        faults.append(f"its time is {got.selection.time_s[row]} s, not {(frame.pts or 0) * linear.time_base_s} s")
    keyframes = set(linear.keyframes)
    if not any(bool(got.selection.is_keyframe[row]) == (position in keyframes) for position in positions):
        faults.append(f"its keyframe flag is {bool(got.selection.is_keyframe[row])}")
    if not any(position in set(linear.candidates) for position in positions):
        faults.append("it is not a keyframe, although the file has some")
    return faults


def _count_faults(got: Frames, linear: LinearDecode) -> list[str]:
    faults = []
    if got.selection.keyframes_in_file != len(linear.keyframes):
        faults.append(f"{got.selection.keyframes_in_file} keyframes are reported, there are {len(linear.keyframes)}")
    if got.selection.total_frames not in {None, len(linear.frames)}:
        faults.append(f"{got.selection.total_frames} frames are reported, there are {len(linear.frames)}")
    return faults


def _completeness_faults(got: Frames, rows: list[int], linear: LinearDecode) -> list[Disagreement]:
    """Check that every keyframe is there, in the order of the linear decode; a damaged index may lack some."""
    expected = [linear.frames[position].digest for position in linear.candidates]
    returned = [digest_pixels(got.unique[row]) for row in rows]
    if returned == expected:
        return []
    rest = iter(expected)
    about: Literal["facts", "counts"] = "counts" if all(digest in rest for digest in returned) else "facts"
    return [Disagreement(about, f"{len(returned)} frames returned, not the {len(expected)} keyframes in their order")]


def _order_faults(got: Frames, rows: list[int], linear: LinearDecode) -> list[str]:
    """Check that frames are in the order of the linear decode, and times never fall."""
    faults = [] if (np.diff(got.selection.time_s) >= 0).all() else [f"times fall: {got.selection.time_s.tolist()}"]
    places: dict[bytes, list[int]] = defaultdict(list)
    for place, frame in enumerate(linear.frames):
        places[frame.digest].append(place)
    last = -1
    for row in rows:
        index = int(got.selection.frame_index[row])
        later = [place for place in places[digest_pixels(got.unique[row])] if place > last]
        near = [place for place in later if index < 0 or _counts_to(index, place, got, linear)]
        if not near:
            return [*faults, f"row {row} is not in the order of the linear decode"]
        last = near[0]
    return faults


def _pick_faults(got: Frames, num_frames: int) -> list[Disagreement]:
    picks = got.shown.tolist()
    counts = Counter(picks)
    faults = []
    if len(picks) != num_frames:
        faults.append(f"{len(picks)} picks, not {num_frames}")
    if picks != sorted(picks) or set(picks) != set(range(len(got.unique))):
        faults.append(f"picks {picks} do not cover all rows in order")
    if max(counts.values()) - min(counts.values()) > 1:
        faults.append(f"picks {picks} are not repeated evenly")
    return [Disagreement("facts", fault) for fault in faults]
