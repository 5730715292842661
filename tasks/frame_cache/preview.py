"""Output of extracted frames: as JSON values, as an array file, or as a contact sheet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from reelabel.coverage import DEFAULT_THRESHOLDS
from reelabel.sampled_frames import NO_PTS, UNKNOWN_POSITION
from reelabel.text import pluralize
from tasks.frame_cache.sheet import Picture, Section, draw_sheet

if TYPE_CHECKING:
    from pathlib import Path

    from reelabel.coverage import CoverageThresholds
    from reelabel.sampled_frames import SampledFrames


def frames_as_json(sampled: SampledFrames, thresholds: CoverageThresholds = DEFAULT_THRESHOLDS) -> dict[str, Any]:
    """Describe the picks, in the order shown, and their video as JSON values."""
    height, width = sampled.images.shape[1:3]
    coverage = sampled.coverage(thresholds)
    picks = [_describe_pick(sampled, row) for row in sampled.picks.tolist()]
    if sampled.deviation_s is not None:
        deviations_s = sampled.deviation_s.round(6).tolist()
        picks = [pick | {"deviation_s": later_s} for pick, later_s in zip(picks, deviations_s, strict=True)]
    return {
        "picks": picks,
        "unique_frames": len(sampled.images),
        "keyframes_in_file": sampled.keyframes_in_file,
        "longest_gap_s": coverage.longest_gap_s,
        "keyframe_coverage": coverage.cover,
        "coverage": list(coverage.reasons),
        "sampler": sampled.sampler,
        "frames_decoded": sampled.frames_decoded,
        "total_frames": sampled.total_frames,
        "fps": sampled.fps,
        "duration_s": sampled.duration_s,
        "width_px": width,
        "height_px": height,
        "pixel_aspect": sampled.pixel_aspect,
        "native_width_px": sampled.native_width_px,
        "native_height_px": sampled.native_height_px,
        "rotation_deg": sampled.rotation_deg,
        "method": sampled.method,
        "reason": sampled.reason,
        "dropped_as_similar": sampled.dropped_as_similar,
        "decode_ms": round(sampled.decode_ms, 3),
    }


def save_npz(sampled: SampledFrames, path: Path) -> None:
    """Save the unique frames as `frames`, shape (N, H, W, 3), uint8, and their PTS as `pts`, shape (N,), int64."""
    # Passing an open file keeps NumPy from appending a suffix to the name.
    with path.open("wb") as file:
        np.savez(file, frames=sampled.images, pts=sampled.pts)


def save_contact_sheet(sampled: SampledFrames, path: Path) -> None:
    """Save the unique frames as a sheet, each captioned with its time; the suffix selects the format."""
    pictures = tuple(
        Picture(image=Image.fromarray(image), lines=(f"{time_s:.3f} s",))
        for image, time_s in zip(sampled.images, sampled.time_s.tolist(), strict=True)
    )
    draw_sheet("", "", [Section(title=pluralize(len(pictures), "frame"), pictures=pictures)]).save(path)


def _describe_pick(sampled: SampledFrames, row: int) -> dict[str, Any]:
    return {
        "frame": row,
        "pts": _or_none(sampled.pts[row], NO_PTS),
        "time_s": float(sampled.time_s[row]),
        "frame_index": _or_none(sampled.frame_index[row], UNKNOWN_POSITION),
        "is_keyframe": bool(sampled.is_keyframe[row]),
    }


def _or_none(value: np.int64, unknown: int) -> int | None:
    return None if value == unknown else int(value)
