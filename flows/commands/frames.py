"""`reelabel frames`."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL.Image import registered_extensions

from flows.asker import read_card
from flows.commands.fetched import fetch_frames
from flows.commands.opened import services
from flows.commands.target import require_folder
from flows.commands.terminal import say
from flows.spec import make_spec
from infra.embedded import ServiceName
from infra.errors import ConfigurationError
from infra.uri import scheme_of
from infra.wording import counted
from tasks.frames.pixels import as_jpeg_shows
from tasks.frames.show import contact_sheet, describe, save_npz
from tasks.video.verdict import Thresholds

if TYPE_CHECKING:
    from infra.sampling_settings import SamplingChoice
    from tasks.domain import Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """How frames are shown; see the command's own help."""

    every: bool
    native: bool
    as_json: bool
    npz: str | None
    sheet: str | None

    def require_targets(self) -> None:
        """Make sure, before the work, that the files can be written.

        Raises:
            ConfigurationError: A folder is missing, or a name tells no picture format.
        """
        for target in filter(None, (self.npz, self.sheet)):
            require_folder(target)
        if self.sheet and Path(self.sheet).suffix.lower() not in registered_extensions():
            raise ConfigurationError(f"--sheet {self.sheet} ends in no picture format; write a name such as sheet.png.")


def show_frames(video: str, view: View, *, segment: Segment, num_frames: int | None, sampling: SamplingChoice) -> None:
    """Extract the frames of a video, or of a part of it, as a run would, and show or save them.

    Raises:
        ConfigurationError: The options do not go together, or a file cannot be written.
        VideoError: The video cannot be used.
    """
    if not video:
        raise ConfigurationError("The video's name is empty; give a path or a URI.")
    if view.every and (num_frames or sampling.sampler):
        raise ConfigurationError("--all takes every keyframe; leave out --num-frames and --sampler.")
    if segment.end_s is not None and segment.end_s <= (segment.start_s or 0.0):
        raise ConfigurationError(f"--end-s {segment.end_s:g} is not after --start-s {segment.start_s or 0.0:g}.")
    view.require_targets()
    with services(*([ServiceName.S3] if video.startswith("s3://") else [])) as settings:
        card = read_card(None, settings)
        asked = make_spec(card, settings, num_frames=num_frames, choice=sampling).sampling
        fetched, size_bytes = fetch_frames(
            video, settings, asked, native=view.native, every=view.every, segment=segment
        )
    keyframes = fetched.keyframes
    if asked.jpeg_quality and not view.native:
        keyframes = replace(keyframes, images=as_jpeg_shows(keyframes.images, quality=asked.jpeg_quality))
    if view.npz:
        save_npz(keyframes, Path(view.npz))
    if view.sheet:
        contact_sheet(keyframes, Path(view.sheet))
    facts = describe(keyframes, Thresholds.of(asked if asked.sampler == "auto" else settings.sampling)) | {
        "bytes_fetched": fetched.bytes_fetched,
        "size_bytes": size_bytes,
    }
    if view.as_json:
        print(json.dumps(facts, indent=2))  # noqa: T201 - for programs, not for a terminal's width
    else:
        _print(facts, is_local=scheme_of(video) in {None, "file"})


def _judged(facts: dict[str, Any]) -> str:
    """Say what the video's keyframes are good for."""
    against = ", ".join(facts["verdict"])
    if facts["longest_gap_s"] is None:
        return f"Keyframes may not be enough: {against}."
    where = f"longest time without one {facts['longest_gap_s']:.2f} s, near one {facts['keyframe_cover']:.0%} of it"
    return f"Keyframes may not be enough: {against} ({where})." if against else f"Keyframes are enough: {where}."


def _print(facts: dict[str, Any], *, is_local: bool) -> None:
    total = "" if facts["total_frames"] is None else f" in {counted(facts['total_frames'], 'frame')}"
    why = f" ({facts['reason']})" if facts["reason"] else ""
    say(f"{counted(facts['keyframes_in_file'], 'keyframe')}{total}, {facts['duration_s']:.2f} s.")
    say(f"Reached by {facts['method']}{why} in {facts['decode_ms']:.1f} ms, {facts['frames_decoded']:,} decoded.")
    say(_judged(facts))
    if not is_local:
        say(f"Read {facts['bytes_fetched']:,} of {counted(facts['size_bytes'], 'byte')}.")
    if facts["dropped_as_similar"]:
        say(f"Dropped {counted(facts['dropped_as_similar'], 'frame')} as similar.")
    for pick in facts["picks"]:
        index, pts = ("?" if pick[name] is None else pick[name] for name in ("frame_index", "pts"))
        say(f"  frame {index:>6}  {pick['time_s']:9.3f} s  pts {pts}")
    if facts["pixel_aspect"] != 1:
        say(f"Players show pixels {facts['pixel_aspect']:.4g} times as wide as high; here they are as stored.")
