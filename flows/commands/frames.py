"""`reelabel frames`."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL.Image import registered_extensions

from flows.asker import read_card
from flows.commands.fetched import fetch_frames
from flows.commands.opened import running_services
from flows.commands.target import require_parent_folder
from flows.commands.terminal import print_line
from flows.spec import make_spec
from infra.embedded import ServiceName
from infra.errors import ConfigurationError
from infra.uri import scheme_of
from infra.wording import pluralize
from tasks.frames.pixels import jpeg_round_trip
from tasks.frames.show import frames_as_json, save_contact_sheet, save_npz
from tasks.video.verdict import CoverageThresholds

if TYPE_CHECKING:
    from infra.sampling_settings import SamplingOptions
    from tasks.domain import Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOptions:
    """Output options; see the command's help."""

    every: bool
    as_stored: bool
    as_json: bool
    npz: str | None
    sheet: str | None

    def require_targets(self) -> None:
        """Make sure, before decoding, that the files can be written.

        Raises:
            ConfigurationError: A folder is missing, or the sheet's suffix is not an image format.
        """
        for target in filter(None, (self.npz, self.sheet)):
            require_parent_folder(target)
        if self.sheet and Path(self.sheet).suffix.lower() not in registered_extensions():
            raise ConfigurationError(f"--sheet {self.sheet} is not an image file; use a name such as sheet.png.")


def show_frames(
    video: str, view: OutputOptions, *, segment: Segment, num_frames: int | None, sampling: SamplingOptions
) -> None:
    """Extract the frames of a video, or of a segment of it, as a run would, and print or save them.

    Raises:
        ConfigurationError: The options conflict, or a file cannot be written.
        VideoError: The video cannot be used.
    """
    if not video:
        raise ConfigurationError("No video given; use a path or a URI.")
    if view.every and (num_frames or sampling.sampler):
        raise ConfigurationError("--all takes every keyframe and cannot be combined with --num-frames or --sampler.")
    if segment.end_s is not None and segment.end_s <= (segment.start_s or 0.0):
        raise ConfigurationError(
            f"--end-s {segment.end_s:g} must be greater than --start-s {segment.start_s or 0.0:g}."
        )
    view.require_targets()
    with running_services(*([ServiceName.S3] if video.startswith("s3://") else [])) as settings:
        card = read_card(None, settings)
        asked = make_spec(card, settings, num_frames=num_frames, choice=sampling).sampling
        fetched, size_bytes = fetch_frames(
            video, settings, asked, native=view.as_stored, every=view.every, segment=segment
        )
    keyframes = fetched.keyframes
    if asked.jpeg_quality and not view.as_stored:
        keyframes = replace(keyframes, images=jpeg_round_trip(keyframes.images, quality=asked.jpeg_quality))
    if view.npz:
        save_npz(keyframes, Path(view.npz))
    if view.sheet:
        save_contact_sheet(keyframes, Path(view.sheet))
    facts = frames_as_json(
        keyframes, CoverageThresholds.of(asked if asked.sampler == "auto" else settings.sampling)
    ) | {
        "bytes_fetched": fetched.bytes_fetched,
        "size_bytes": size_bytes,
    }
    if view.as_json:
        print(json.dumps(facts, indent=2))  # noqa: T201 - for programs: not wrapped
    else:
        _print(facts, is_local=scheme_of(video) in {None, "file"})


def _coverage_line(facts: dict[str, Any]) -> str:
    """Say whether the video's keyframes cover it."""
    against = ", ".join(facts["verdict"])
    if facts["longest_gap_s"] is None:
        return f"Keyframes may not be enough: {against}."
    where = f"longest gap {facts['longest_gap_s']:.2f} s, {facts['keyframe_cover']:.0%} of the video near a keyframe"
    return f"Keyframes may not be enough: {against} ({where})." if against else f"Keyframes are enough: {where}."


def _print(facts: dict[str, Any], *, is_local: bool) -> None:
    total = "" if facts["total_frames"] is None else f" in {pluralize(facts['total_frames'], 'frame')}"
    why = f" ({facts['reason']})" if facts["reason"] else ""
    print_line(f"{pluralize(facts['keyframes_in_file'], 'keyframe')}{total}, {facts['duration_s']:.2f} s.")
    print_line(
        f"Decoded {pluralize(facts['frames_decoded'], 'frame')} by {facts['method']}{why} "
        f"in {facts['decode_ms']:.1f} ms."
    )
    print_line(_coverage_line(facts))
    if not is_local:
        print_line(f"Read {facts['bytes_fetched']:,} of {pluralize(facts['size_bytes'], 'byte')}.")
    if facts["dropped_as_similar"]:
        print_line(f"Dropped {pluralize(facts['dropped_as_similar'], 'frame')} as similar.")
    for pick in facts["picks"]:
        index, pts = ("?" if pick[name] is None else pick[name] for name in ("frame_index", "pts"))
        print_line(f"  frame {index:>6}  {pick['time_s']:9.3f} s  pts {pts}")
    if facts["pixel_aspect"] != 1:
        print_line(f"Players stretch pixels horizontally by {facts['pixel_aspect']:.4g}; these frames are as stored.")
