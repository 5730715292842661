"""Output of extracted frames: as JSON values, as an array file, or as a contact sheet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageDraw

from reelabel.coverage import DEFAULT_THRESHOLDS
from reelabel.sampled_frames import NO_PTS, UNKNOWN_POSITION

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

    from reelabel.coverage import CoverageThresholds
    from reelabel.sampled_frames import SampledFrames

_CAPTION_PX = 16
_MAX_COLUMNS = 4


def frames_as_json(keyframes: SampledFrames, thresholds: CoverageThresholds = DEFAULT_THRESHOLDS) -> dict[str, Any]:
    """Describe the picks, in the order shown, and their video as JSON values."""
    height, width = keyframes.images.shape[1:3]
    coverage = keyframes.coverage(thresholds)
    picks = [_describe_pick(keyframes, row) for row in keyframes.picks.tolist()]
    if keyframes.deviation_s is not None:
        deviations_s = keyframes.deviation_s.round(6).tolist()
        picks = [pick | {"deviation_s": later_s} for pick, later_s in zip(picks, deviations_s, strict=True)]
    return {
        "picks": picks,
        "unique_frames": len(keyframes.images),
        "keyframes_in_file": keyframes.keyframes_in_file,
        "longest_gap_s": coverage.longest_gap_s,
        "keyframe_coverage": coverage.cover,
        "coverage": list(coverage.reasons),
        "sampler": keyframes.sampler,
        "frames_decoded": keyframes.frames_decoded,
        "total_frames": keyframes.total_frames,
        "fps": keyframes.fps,
        "duration_s": keyframes.duration_s,
        "width_px": width,
        "height_px": height,
        "pixel_aspect": keyframes.pixel_aspect,
        "native_width_px": keyframes.native_width_px,
        "native_height_px": keyframes.native_height_px,
        "rotation_deg": keyframes.rotation_deg,
        "method": keyframes.method,
        "reason": keyframes.reason,
        "dropped_as_similar": keyframes.dropped_as_similar,
        "decode_ms": round(keyframes.decode_ms, 3),
    }


def save_npz(keyframes: SampledFrames, path: Path) -> None:
    """Save the unique frames as `frames`, shape (N, H, W, 3), uint8, and their PTS as `pts`, shape (N,), int64."""
    # Passing an open file keeps NumPy from appending a suffix to the name.
    with path.open("wb") as file:
        np.savez(file, frames=keyframes.images, pts=keyframes.pts)


def save_contact_sheet(keyframes: SampledFrames, path: Path) -> None:
    """Save the unique frames as a grid, each captioned with its time in seconds; the suffix selects the format."""
    count, height, width, _ = keyframes.images.shape
    columns = min(count, _MAX_COLUMNS)
    rows = -(-count // columns)
    sheet = Image.new("RGB", (columns * width, rows * (height + _CAPTION_PX)), "white")
    draw = ImageDraw.Draw(sheet)
    for place, (image, time_s) in enumerate(zip(keyframes.images, keyframes.time_s.tolist(), strict=True)):
        left, top = place % columns * width, place // columns * (height + _CAPTION_PX)
        _draw_frame(sheet, draw, image, left=left, top=top, caption=f"{time_s:.3f} s")
    sheet.save(path)


def _draw_frame(
    sheet: Image.Image,
    draw: ImageDraw.ImageDraw,
    image: npt.NDArray[np.uint8],
    *,
    left: int,
    top: int,
    caption: str,
) -> None:
    sheet.paste(Image.fromarray(image), (left, top))
    draw.text((left + 2, top + len(image) + 2), caption, fill="black")


def _describe_pick(keyframes: SampledFrames, row: int) -> dict[str, Any]:
    return {
        "frame": row,
        "pts": _or_none(keyframes.pts[row], NO_PTS),
        "time_s": float(keyframes.time_s[row]),
        "frame_index": _or_none(keyframes.frame_index[row], UNKNOWN_POSITION),
        "is_keyframe": bool(keyframes.is_keyframe[row]),
    }


def _or_none(value: np.int64, unknown: int) -> int | None:
    return None if value == unknown else int(value)
