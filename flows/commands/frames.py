"""`reelabel frames`."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from infra.errors import VideoMissingError
from infra.objects import ObjectStore
from infra.settings import load_settings
from tasks.domain import Sampling
from tasks.frames.prepare import look_at_video
from tasks.frames.show import contact_sheet, describe, save_npz
from tasks.video.extract import extract_keyframes
from tasks.video.limits import Limits

_CONSOLE = Console()


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
    objects = ObjectStore(settings.store, settings.web)
    info = look_at_video(objects, video, allow_roots=settings.extract.allow_roots)
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
        save_npz(keyframes, Path(npz))
    if sheet:
        contact_sheet(keyframes, Path(sheet))
    facts = describe(keyframes) | {"bytes_fetched": info.size_bytes}
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
