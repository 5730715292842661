"""Comparison of every file of the matrix with its linear decode."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import av
import numpy as np
import typer

from benchmarks.exactness.agreement import disagreements
from benchmarks.exactness.document import conformance_document
from benchmarks.exactness.linear import LinearDecode, decode_linearly, digest_pixels
from benchmarks.harness import OUT, progress
from benchmarks.media.matrix import cells_like, matrix
from reelabel.errors import VideoError
from reelabel.extract import extract_local
from reelabel.options import Limits
from reelabel.sampling.options import Sampling
from reelabel.sampling.spec import EVERY

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from benchmarks.media.matrix import Cell
    from reelabel.result import Frames

_PICKS = (16, 4, 1, None)
_DENSE_FRAMES = (8, EVERY)
_BROKEN = "broken frame"
_METHODS = {"index", "seek", "linear"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConformanceResult:
    """Result of one file.

    Attributes:
        frames: Frames of the linear decode.
        keyframes: Keyframes among them.
        method: How sixteen picks were decoded, or the error code.
        reason: Why a slower method was necessary; empty where it was not.
        faults: Differences from the linear decode; empty where there is none.
    """

    frames: int
    keyframes: int
    method: str
    reason: str
    faults: tuple[str, ...]


def conformance(*, only: str, write: str | None) -> int:
    """Check every file of the matrix, and write the document if asked to; return 1 if one is not exact, else 0."""
    if only and write:
        raise typer.BadParameter("The document covers every file; leave out --only.", param_hint="--write")
    with progress("Making and checking files"):
        results = check_cells(wanted_cells(only) if only else matrix())
    for cell, result in results.items():
        for fault in result.faults:
            OUT.print(f"{cell.name}: {fault}", soft_wrap=True, highlight=False, markup=False)
    if write:
        Path(write).write_text(conformance_document(results))
    exact = sum(not result.faults for result in results.values())
    OUT.print(f"{exact} of {len(results)} files are exact.")
    return 0 if exact == len(results) else 1


def wanted_cells(prefix: str) -> Sequence[Cell]:
    """Return the cells whose names begin with a prefix."""
    cells = cells_like(prefix)
    if not cells:
        raise typer.BadParameter(
            f"No file of the matrix begins with {prefix!r}; use for example avi or avi/mpeg4.", param_hint="--only"
        )
    return cells


def check_cells(cells: Sequence[Cell]) -> dict[Cell, ConformanceResult]:
    results = {}
    with TemporaryDirectory(prefix="reelabel-") as folder:
        path = Path(folder) / "clip"
        for cell in cells:
            path.write_bytes(cell.make())
            results[cell] = check_cell(cell, path)
    return results


def check_cell(cell: Cell, path: Path) -> ConformanceResult:
    """Check the file of a cell, and the orientation of its picture."""
    result = check_file(path)
    if not cell.recipe.turn or result.method not in _METHODS:
        return result
    return replace(result, faults=(*result.faults, *_turn_faults(path, cell.recipe.turn)))


def check_file(path: Path) -> ConformanceResult:
    """Extract 16, 4 and 1 picks, every keyframe and some of all frames, and compare each with the linear decode."""
    linear = decode_linearly(path)
    outcomes = [_extract(path, num_frames) for num_frames in _PICKS]
    faults = [
        f"{num_frames or 'every'}: {fault}"
        for num_frames, outcome in zip(_PICKS, outcomes, strict=True)
        for fault in _faults(outcome, linear, num_frames)
    ]
    faults += [
        f"{'every' if frames == EVERY else frames} of all frames: {fault}"
        for frames in _DENSE_FRAMES
        for fault in _dense_faults(path, linear, frames)
    ]
    first = outcomes[0]
    return ConformanceResult(
        frames=len(linear.frames),
        keyframes=len(linear.keyframes),
        method=first.code if isinstance(first, VideoError) else first.method,
        reason=first.message if isinstance(first, VideoError) else first.note,
        faults=tuple(faults),
    )


def _extract(path: Path, num_frames: int | None) -> Frames | VideoError:
    sampling = Sampling(num_frames=num_frames or EVERY)
    try:
        return extract_local(path, sampling=sampling, limits=Limits(), as_stored=True)
    except VideoError as error:
        return error


def _faults(outcome: Frames | VideoError, linear: LinearDecode, num_frames: int | None) -> list[str]:
    if not isinstance(outcome, VideoError):
        return [fault.text for fault in disagreements(outcome, linear, num_frames=num_frames)]
    if linear.frames:
        return [
            f"extraction fails ({outcome.code}: {outcome.message}), the linear decode shows {len(linear.frames)} frames"
        ]
    return []


def _dense_faults(path: Path, linear: LinearDecode, frames: int) -> list[str]:
    """Check that frames spread over the video are those at even distances among all that the decoder outputs."""
    sampling = Sampling(sampler="uniform", num_frames=frames)
    try:
        got = extract_local(path, sampling=sampling, limits=Limits(), as_stored=True)
    except VideoError as error:
        return _faults(error, linear, frames)
    if (
        got.selection.total_frames != len(linear.frames) or _BROKEN in got.note
    ):  # chosen among frames that do not decode, too
        return []
    count = len(linear.frames) if frames == EVERY else min(frames, len(linear.frames))
    wanted = np.linspace(0, len(linear.frames) - 1, count, dtype=np.int64).tolist()
    shown = [digest_pixels(image) for image in got.unique[got.shown]]
    if shown != [linear.frames[position].digest for position in wanted]:
        return [f"the frames {got.selection.frame_index[got.shown].tolist()} are not those at {wanted}"]
    return [] if (np.diff(got.selection.time_s) >= 0).all() else [f"times fall: {got.selection.time_s.tolist()}"]


def _turn_faults(path: Path, turn: tuple[int, bool, bool]) -> list[str]:
    """Check that the model sees the picture upright: of its eight orientations, the right one must be the nearest."""
    sampling = Sampling(num_frames=1, size_multiple_px=1)
    seen = extract_local(path, sampling=sampling, limits=Limits())
    with av.open(str(path)) as container:
        stored = next(frame for frame in container.decode(video=0) if frame.pts == seen.selection.pts[0])
        stored_image = np.asarray(stored.to_ndarray(format="rgb24"), np.uint8)
    orientations = {
        (degrees, is_mirrored): _turned(stored_image, degrees, is_mirrored=is_mirrored)
        for degrees in (0, 90, 180, 270)
        for is_mirrored in (False, True)
    }
    nearest = min(orientations, key=lambda orientation: _distance(orientations[orientation], seen.unique[0]))
    degrees, is_mirrored, is_flipped = turn
    # A vertical flip is a mirrored half turn.
    wanted = ((degrees + 180 * is_flipped) % 360, is_mirrored != is_flipped)
    if nearest == wanted:
        return []
    return [
        f"the display matrix turns by {wanted[0]} degrees, mirrored {wanted[1]}; the picture is turned by {nearest}"
    ]


def _turned(image: npt.NDArray[np.uint8], degrees: int, *, is_mirrored: bool) -> npt.NDArray[np.uint8]:
    turned = np.rot90(image, degrees // 90)
    return np.fliplr(turned) if is_mirrored else turned


def _distance(one: npt.NDArray[np.uint8], other: npt.NDArray[np.uint8]) -> float:
    if one.shape != other.shape:
        return float("inf")
    return float(np.abs(one.astype(np.int16) - other).mean())
