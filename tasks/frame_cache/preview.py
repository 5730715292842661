"""Writes extracted frames as JSON values, an array file, or a contact sheet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from reelabel.coverage import DEFAULT_THRESHOLDS
from reelabel.index import NO_PTS, UNKNOWN_POSITION
from reelabel.text import pluralize
from tasks.frame_cache.sheet import Picture, Section, draw_sheet

if TYPE_CHECKING:
    from pathlib import Path

    from reelabel.coverage import CoverageThresholds
    from reelabel.result import Frames


def frames_as_json(sampled: Frames, thresholds: CoverageThresholds = DEFAULT_THRESHOLDS) -> dict[str, Any]:
    """Describe the sampled frames, in the order shown, and their video as JSON values."""
    height, width = sampled.unique.shape[1:3]
    coverage = sampled.coverage(thresholds)
    picks = [_describe_pick(sampled, row) for row in sampled.shown.tolist()]
    if sampled.deviation_s is not None:
        deviations_s = sampled.deviation_s.round(6).tolist()
        picks = [pick | {"deviation_s": later_s} for pick, later_s in zip(picks, deviations_s, strict=True)]
    return {
        "picks": picks,
        "unique_frames": len(sampled.unique),
        "keyframes_in_file": sampled.selection.keyframes_in_file,
        "longest_gap_s": coverage.longest_gap_s,
        "keyframe_coverage": coverage.cover,
        "coverage": list(coverage.reasons),
        "sampler": sampled.sampler,
        "frames_decoded": sampled.cost.frames_decoded,
        "total_frames": sampled.selection.total_frames,
        "fps": sampled.selection.fps,
        "duration_s": sampled.selection.duration_s,
        "width_px": width,
        "height_px": height,
        "pixel_aspect": sampled.selection.pixel_aspect,
        "native_width_px": sampled.selection.native_width_px,
        "native_height_px": sampled.selection.native_height_px,
        "rotation_deg": sampled.selection.rotation_deg,
        "method": sampled.method,
        "note": sampled.note,
        "dropped_as_similar": sampled.selection.dropped_as_similar,
        "decode_ms": round(sampled.cost.decode_ms, 3),
    }


def save_npz(sampled: Frames, path: Path) -> None:
    """Save the unique frames as `frames`, shape (N, H, W, 3), uint8, and their PTS as `pts`, shape (N,), int64."""
    # Passing an open file keeps NumPy from appending a suffix to the name.
    with path.open("wb") as file:
        np.savez(file, frames=sampled.unique, pts=sampled.selection.pts)


def save_contact_sheet(sampled: Frames, path: Path) -> None:
    """Save the unique frames as a sheet, each captioned with its time; the suffix selects the format."""
    pictures = tuple(
        Picture(image=Image.fromarray(image), lines=(f"{time_s:.3f} s",))
        for image, time_s in zip(sampled.unique, sampled.selection.time_s.tolist(), strict=True)
    )
    draw_sheet("", "", [Section(title=pluralize(len(pictures), "frame"), pictures=pictures)]).save(path)


def _describe_pick(sampled: Frames, row: int) -> dict[str, Any]:
    return {
        "frame": row,
        "pts": _or_none(sampled.selection.pts[row], NO_PTS),
        "time_s": float(sampled.selection.time_s[row]),
        "frame_index": _or_none(sampled.selection.frame_index[row], UNKNOWN_POSITION),
        "is_keyframe": bool(sampled.selection.is_keyframe[row]),
    }


def _or_none(value: np.int64, unknown: int) -> int | None:
    return None if value == unknown else int(value)
