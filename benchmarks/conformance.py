"""Judging every cell of the matrix against its linear decode."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import av
import numpy as np

from benchmarks.agreement import disagreements
from benchmarks.linear import LinearDecode, decode_linearly
from infra.errors import VideoError
from tasks.domain import Sampling
from tasks.video.extract import extract_keyframes
from tasks.video.limits import Limits

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

    from benchmarks.media.matrix import Cell
    from tasks.video.keyframes import Keyframes

_PICKS = (16, 4, 1, None)
_METHODS = {"index", "seek", "linear"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What came of one cell.

    Attributes:
        frames: Frames of the linear decode.
        keyframes: Keyframes among them.
        method: How sixteen picks were reached; the error's code where they were not.
        reason: Why a slower way had to be taken; empty where it had not.
        faults: Differences from the linear decode; empty where there is none.
    """

    frames: int
    keyframes: int
    method: str
    reason: str
    faults: tuple[str, ...]


def judge(cell: Cell, path: Path) -> Verdict:
    """Judge a cell's file, and how its picture is turned."""
    verdict = judge_file(path)
    if not cell.recipe.turn or verdict.method not in _METHODS:
        return verdict
    return replace(verdict, faults=(*verdict.faults, *_turn_faults(path, cell.recipe.turn)))


def judge_file(path: Path) -> Verdict:
    """Extract 16, 4 and 1 picks and every keyframe, natively, and compare each with the linear decode."""
    linear = decode_linearly(path)
    outcomes = [_extract(path, num_frames) for num_frames in _PICKS]
    faults = [
        f"{num_frames or 'every'}: {fault}"
        for num_frames, outcome in zip(_PICKS, outcomes, strict=True)
        for fault in _faults(outcome, linear, num_frames)
    ]
    first = outcomes[0]
    return Verdict(
        frames=len(linear.frames),
        keyframes=len(linear.keyframes),
        method=first.code if isinstance(first, VideoError) else first.method,
        reason=first.message if isinstance(first, VideoError) else first.reason,
        faults=tuple(faults),
    )


def _extract(path: Path, num_frames: int | None) -> Keyframes | VideoError:
    sampling = Sampling(num_frames=num_frames or 1)
    try:
        return extract_keyframes(path, sampling=sampling, limits=Limits(), native=True, every=num_frames is None)
    except VideoError as error:
        return error


def _faults(outcome: Keyframes | VideoError, linear: LinearDecode, num_frames: int | None) -> list[str]:
    if not isinstance(outcome, VideoError):
        return [fault.text for fault in disagreements(outcome, linear, num_frames=num_frames)]
    if linear.frames:
        return [f"it fails ({outcome.code}: {outcome.message}), the linear decode shows {len(linear.frames)} frames"]
    return []


def _turn_faults(path: Path, turn: tuple[int, bool, bool]) -> list[str]:
    """Tell whether the model sees the picture upright: nearest to the right one of its eight orientations."""
    sampling = Sampling(num_frames=1, size_multiple_px=1)
    seen = extract_keyframes(path, sampling=sampling, limits=Limits())
    with av.open(str(path)) as container:
        stored = next(frame for frame in container.decode(video=0) if frame.pts == seen.pts[0])
        stored_image = np.asarray(stored.to_ndarray(format="rgb24"), np.uint8)
    orientations = {
        (degrees, is_mirrored): _turned(stored_image, degrees, is_mirrored=is_mirrored)
        for degrees in (0, 90, 180, 270)
        for is_mirrored in (False, True)
    }
    nearest = min(orientations, key=lambda orientation: _distance(orientations[orientation], seen.images[0]))
    degrees, is_mirrored, is_flipped = turn
    # A flip is a mirrored half turn.
    wanted = ((degrees + 180 * is_flipped) % 360, is_mirrored != is_flipped)
    if nearest == wanted:
        return []
    return [f"the display matrix turns by {wanted[0]} degrees, mirrored {wanted[1]}; the picture is {nearest}"]


def _turned(image: npt.NDArray[np.uint8], degrees: int, *, is_mirrored: bool) -> npt.NDArray[np.uint8]:
    turned = np.rot90(image, degrees // 90)
    return np.fliplr(turned) if is_mirrored else turned


def _distance(one: npt.NDArray[np.uint8], other: npt.NDArray[np.uint8]) -> float:
    if one.shape != other.shape:
        return float("inf")
    return float(np.abs(one.astype(np.int16) - other).mean())
