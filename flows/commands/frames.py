"""`reelabel frames`."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageDraw
from rich.console import Console

from infra.errors import VideoMissingError
from infra.objects import ObjectStore
from infra.settings import load_settings
from tasks.domain import Sampling
from tasks.frames.prepare import look_at_video
from tasks.video.extract import extract_keyframes
from tasks.video.limits import Limits

if TYPE_CHECKING:
    from tasks.video.keyframes import Keyframes

_CONSOLE = Console()
_COLUMNS = 4
_THUMB_PX = 240
_CAPTION_PX = 16


def show_frames(
    video: str,
    *,
    num_frames: int,
    every: bool,
    native: bool,
    as_json: bool,
    npz: str | None,
    sheet: str | None,
) -> None:
    """Extract a video's frames as a run would, and show or save them.

    Raises:
        VideoError: The video cannot be used.
    """
    settings = load_settings()
    objects = ObjectStore(settings.store)
    info = look_at_video(objects, video)
    sampling = Sampling(num_frames=num_frames, max_pixels=settings.sampling.max_pixels or Sampling().max_pixels)
    limits = Limits(
        max_video_bytes=settings.extract.max_video_bytes,
        max_frame_pixels=settings.extract.max_frame_pixels,
    )
    with TemporaryDirectory(prefix="reelabel-") as folder:
        path = objects.local_path(video)
        if path is None:
            path = Path(folder) / "video"
            objects.download(video, path, fingerprint=info.fingerprint, max_bytes=limits.max_video_bytes)
        elif not path.is_file():
            raise VideoMissingError(f"{video} is not a file.")
        keyframes = extract_keyframes(path, sampling=sampling, limits=limits, native=native, every=every)
    if npz:
        with Path(npz).open("wb") as file:
            np.savez(file, frames=keyframes.images, pts=keyframes.pts)
    if sheet:
        draw_sheet(keyframes).save(sheet)
    facts = describe(keyframes, bytes_fetched=info.size_bytes)
    if as_json:
        print(json.dumps(facts, indent=2))  # noqa: T201 - for programs, not for a terminal's width
        return
    _CONSOLE.print(
        f"{facts['keyframes_in_file']} keyframes in {facts['total_frames']} frames, {facts['duration_s']:.2f} s; "
        f"reached by {facts['method']} in {facts['decode_ms']:.1f} ms.",
        soft_wrap=True,
    )
    for pick in facts["picks"]:
        _CONSOLE.print(f"  frame {pick['frame_index']:>6}  {pick['time_s']:9.3f} s  pts {pick['pts']}")


def describe(keyframes: Keyframes, *, bytes_fetched: int) -> dict[str, Any]:
    """Say what the model would see, as JSON values."""
    return {
        "keyframes_in_file": keyframes.keyframes_in_file,
        "total_frames": keyframes.total_frames,
        "duration_s": keyframes.duration_s,
        "fps": keyframes.fps,
        "width_px": keyframes.images.shape[2],
        "height_px": keyframes.images.shape[1],
        "native_width_px": keyframes.native_width_px,
        "native_height_px": keyframes.native_height_px,
        "rotation_deg": keyframes.rotation_deg,
        "method": keyframes.method,
        "reason": keyframes.reason,
        "bytes_fetched": bytes_fetched,
        "decode_ms": round(keyframes.decode_ms, 3),
        "picks": [
            {
                "pts": int(keyframes.pts[row]),
                "time_s": float(keyframes.time_s[row]),
                "frame_index": int(keyframes.frame_index[row]),
                "is_keyframe": bool(keyframes.is_keyframe[row]),
            }
            for row in keyframes.picks.tolist()
        ],
    }


def draw_sheet(keyframes: Keyframes) -> Image.Image:
    """Draw each unique frame with its time, in reading order."""
    height, width = keyframes.images.shape[1:3]
    thumb_height = max(1, round(_THUMB_PX * height / width))
    columns = min(_COLUMNS, len(keyframes.images))
    rows = -(-len(keyframes.images) // columns)
    sheet = Image.new("RGB", (columns * _THUMB_PX, rows * (thumb_height + _CAPTION_PX)), "white")
    draw = ImageDraw.Draw(sheet)
    for number, (image, time_s) in enumerate(zip(keyframes.images, keyframes.time_s, strict=True)):
        left, top = number % columns * _THUMB_PX, number // columns * (thumb_height + _CAPTION_PX)
        sheet.paste(Image.fromarray(image).resize((_THUMB_PX, thumb_height)), (left, top))
        shown = int((keyframes.picks == number).sum())
        draw.text((left + 4, top + thumb_height + 2), f"{time_s:.2f} s, shown {shown}x", fill="black")
    return sheet
