"""`reelabel frames`: shows the frames that samplers select from a video, and their cost."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.console import (
    ERRORS,
    list_times,
    print_json,
    print_line,
    print_warning,
    require_parent_folder,
    require_sheet,
)
from flows.cli.context import running_store
from flows.cli.options import example, with_sampling
from flows.compare.candidates import format_sampling, parse_sampler
from flows.run.request import QuestionOptions
from flows.run.spec import make_spec, native_warning
from infra.settings import SamplingOptions
from reelabel.coverage import CoverageThresholds
from reelabel.errors import ConfigurationError, VideoError
from reelabel.frames.pixels import jpeg_round_trip
from reelabel.result import Frames
from reelabel.sampling.registry import KEYFRAMES, NATIVE
from reelabel.sampling.spec import EVERY
from reelabel.segment import WHOLE, Segment
from reelabel.sources.object_info import redact_uri, scheme_of
from reelabel.sources.opened import stat_video
from reelabel.text import escape_controls, pluralize
from tasks.frame_cache.pool import decode_pool, uncached_reader, video_store
from tasks.frame_cache.preview import frames_as_json, save_contact_sheet, save_npz
from tasks.frame_cache.sheet import Section, draw_sheet, picture_frames
from tasks.model.backend import backend_of

if TYPE_CHECKING:
    from infra.settings import Settings
    from reelabel.sampling.options import Sampling
    from reelabel.sources.object_info import ObjectInfo

_MAX_SAMPLERS = 10


@example("reelabel frames clip.mp4 --sampler uniform --json")
@with_sampling
def frames(  # noqa: PLR0913 - a command's options
    video: Annotated[str, typer.Argument(help="Path or URI of a video.")],
    *,
    start_s: Annotated[float, typer.Option(min=0, help="Start of the segment, in seconds.")] = 0.0,
    end_s: Annotated[
        float | None, typer.Option(min=0, help="End of the segment, in seconds. Default: the video's end.")
    ] = None,
    sampling: SamplingOptions,
    every: Annotated[bool, typer.Option("--all", help="Take every keyframe that the container lists.")] = False,
    as_stored: Annotated[bool, typer.Option("--as-stored", help="Leave frames unscaled and unrotated.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print what the model would see as JSON.")] = False,
    npz: Annotated[str | None, typer.Option(help="Save the frames to this .npz file.")] = None,
    sheet: Annotated[str | None, typer.Option(help="Save a contact sheet to this image file, such as x.png.")] = None,
    compare: Annotated[
        str | None,
        typer.Option(
            metavar="SAMPLERS",
            help="Compare what several samplers show and decode, such as keyframes,uniform:16,native.",
        ),
    ] = None,
) -> None:
    """Show which frames of a video the model would see."""
    if not video:
        raise ConfigurationError("No video given; use a path or a URI.")
    if every and (sampling.num_frames or sampling.sampler):
        raise ConfigurationError("--all takes every keyframe and cannot be combined with --num-frames or --sampler.")
    if end_s is not None and end_s <= start_s:
        raise ConfigurationError(f"--end-s {end_s:g} must be greater than --start-s {start_s:g}.")
    if math.inf in {start_s, end_s}:
        raise ConfigurationError("--start-s and --end-s must be finite; leave out --end-s for the video's end.")
    if compare is not None and (every or npz or sampling.sampler):
        raise ConfigurationError("--compare names the samplers itself; leave out --all, --npz and --sampler.")
    if every:
        sampling = sampling.model_copy(update={"sampler": KEYFRAMES.name, "num_frames": EVERY})
    requested = {"": sampling} if compare is None else _parse_samplers(compare, sampling)
    if npz:
        require_parent_folder(npz)
    if sheet:
        require_sheet(sheet)
    with running_store(video) as settings:
        samplings = _resolve_samplers(requested, settings)
        info = stat_video(video_store(settings), video)
        segment = Segment.of(start_s, end_s)
        results = _extract(info, samplings, settings, as_stored=as_stored, segment=segment)
    if compare is None:
        _show_one(info, results[0], as_json=json, npz=npz, sheet=sheet)
    else:
        _show_all(info, results, as_json=json, sheet=sheet)


def fetch_frames(video: str, settings: Settings, sampling: Sampling, *, segment: Segment = WHOLE) -> Frames:
    info = stat_video(video_store(settings), video)
    with decode_pool(settings, processes=1) as pool:
        return uncached_reader(settings, pool).fetch(info, sampling, segment=segment).frames


def _parse_samplers(text: str, usual: SamplingOptions) -> dict[str, SamplingOptions]:
    """Parse samplers with their options: `keyframes,qwen3_vl,fps=4` names two. Those in `usual` are the defaults."""
    parts: list[str] = []
    for part in text.replace(" ", "").split(","):
        if "=" in part and parts:
            parts[-1] += f",{part}"
        else:
            parts.append(part)
    if not all(parts):
        raise ConfigurationError(f"--compare takes samplers such as keyframes,uniform:16,native; not {text!r}.")
    if len(set(parts)) > _MAX_SAMPLERS:
        raise ConfigurationError(f"--compare takes at most {_MAX_SAMPLERS} samplers, not {len(set(parts))}.")
    options = usual.model_dump(exclude_none=True)
    return {part: SamplingOptions(**options | parse_sampler(part).model_dump(exclude_none=True)) for part in parts}


def _resolve_samplers(requested: dict[str, SamplingOptions], settings: Settings) -> dict[str, Sampling]:
    """Return the sampling of each sampler by display name, and print warnings."""
    model_info, resolved = backend_of(settings).model_info(None, settings), {}
    warnings = set()
    for name, options in requested.items():
        overrides = QuestionOptions(sampling=options)
        try:
            sampling = make_spec(model_info, settings, overrides).sampling
        except (ConfigurationError, ValueError) as error:
            raise ConfigurationError(f"--compare {name}: {error}" if name else str(error)) from None
        warnings.add(native_warning(model_info, settings, overrides))
        title = format_sampling(sampling)
        resolved[f"{NATIVE}: {title}" if options.sampler == NATIVE else title] = sampling
    for warning in warnings:
        print_warning(warning)
    return resolved


@dataclass(frozen=True, slots=True, kw_only=True)
class _SamplerResult:
    """The frames that one sampler selects from a video, and facts about them; `facts` has an `error` if it fails."""

    name: str
    frames: Frames | None = None
    facts: dict[str, Any] = field(default_factory=dict)


def _extract(
    info: ObjectInfo,
    samplings: dict[str, Sampling],
    settings: Settings,
    *,
    as_stored: bool,
    segment: Segment,
) -> list[_SamplerResult]:
    """Extract the frames of each sampler; if all fail, raise the first one's error."""
    results, faults = [], []
    with decode_pool(settings, processes=1) as pool, ERRORS.status("Extracting the frames") as status:
        reader = uncached_reader(settings, pool)
        for name, sampling in samplings.items():
            status.update(f"Extracting the frames of {name}")
            try:
                frames = reader.fetch(info, sampling, as_stored=as_stored, segment=segment).frames
            except VideoError as error:
                faults.append(error)
                results.append(
                    _SamplerResult(name=name, facts={"error": {"code": error.code, "message": error.message}})
                )
                continue
            if sampling.jpeg_quality and not as_stored:
                images = jpeg_round_trip(frames.unique, quality=sampling.jpeg_quality)
                frames = Frames.of(images, frames.selection)
            thresholds = CoverageThresholds.of(sampling)
            results.append(_SamplerResult(name=name, frames=frames, facts=frames_as_json(frames, thresholds)))
    if len(faults) == len(results):
        raise faults[0]
    return results


def _show_one(info: ObjectInfo, result: _SamplerResult, *, as_json: bool, npz: str | None, sheet: str | None) -> None:
    assert result.frames is not None
    if npz:
        save_npz(result.frames, Path(npz))
    if sheet:
        save_contact_sheet(result.frames, Path(sheet))
    read = {"bytes_fetched": result.frames.cost.bytes_fetched, "size_bytes": info.size_bytes}
    if as_json:
        print_json(result.facts | read)
    else:
        _print_frames(result.facts | read, is_local=_is_local(info))


def _is_local(info: ObjectInfo) -> bool:
    """Return whether FFmpeg reads the video itself, without reporting how much of it."""
    return scheme_of(info.uri) in {None, "file"}


def _print_frames(facts: dict[str, Any], *, is_local: bool) -> None:
    why = f" ({facts['note']})" if facts["note"] else ""
    print_line(f"{_keyframes_of(facts)}, {facts['duration_s']:.2f} s.")
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


def _keyframes_of(facts: dict[str, Any]) -> str:
    total = "" if facts["total_frames"] is None else f" in {pluralize(facts['total_frames'], 'frame')}"
    return f"{pluralize(facts['keyframes_in_file'], 'keyframe')}{total}"


def _coverage_line(facts: dict[str, Any]) -> str:
    against = ", ".join(facts["coverage"])
    if facts["longest_gap_s"] is None:
        return f"Keyframes may not be enough: {against}."
    where = f"longest gap {facts['longest_gap_s']:.2f} s, {facts['keyframe_coverage']:.0%} of the video near a keyframe"
    return f"Keyframes may not be enough: {against} ({where})." if against else f"Keyframes are enough: {where}."


def _show_all(info: ObjectInfo, results: list[_SamplerResult], *, as_json: bool, sheet: str | None) -> None:
    facts = next(each.facts for each in results if each.frames)
    size = f"{facts['native_width_px']}x{facts['native_height_px']}, {pluralize(info.size_bytes, 'byte')}"
    about = f"{_keyframes_of(facts)}, {facts['duration_s']:.2f} s, {size}"
    is_local = _is_local(info)
    sections = [_section(each, is_local=is_local) for each in results]
    if sheet:
        draw_sheet(escape_controls(redact_uri(info.uri)), about, sections).save(sheet)
    if as_json:
        samplers = [{"name": each.name} | each.facts | _bytes_read(each, is_local=is_local) for each in results]
        facts = {"video_uri": redact_uri(info.uri), "size_bytes": info.size_bytes, "samplers": samplers}
        print_json(facts)
        return
    print_line(f"{about}.")
    for section, each in zip(sections, results, strict=True):
        print_line((section.title, "bold"))
        print_line(f"  {section.error or section.facts}")
        if each.frames:
            print_line("  " + ", ".join(list_times(pick["time_s"] for pick in each.facts["picks"])))


def _bytes_read(result: _SamplerResult, *, is_local: bool) -> dict[str, Any]:
    if result.frames is None or is_local:
        return {}
    return {"bytes_fetched": result.frames.cost.bytes_fetched, "fetch_ms": round(result.frames.cost.fetch_ms, 3)}


def _section(result: _SamplerResult, *, is_local: bool) -> Section:
    if result.frames is None:
        return Section(title=result.name, error=escape_controls(result.facts["error"]["message"]))
    frames = result.frames
    pictures, note = picture_frames(frames)
    dropped = frames.selection.dropped_as_similar
    total = "" if frames.selection.total_frames is None else f" of {frames.selection.total_frames:,}"
    costs = [
        f"{pluralize(len(frames), 'frame')} shown, {len(frames.unique):,} distinct",
        f"{frames.cost.frames_decoded:,}{total} decoded by {frames.method} in {frames.cost.decode_ms:.1f} ms",
        "" if is_local else f"{pluralize(frames.cost.bytes_fetched, 'byte')} read in {frames.cost.fetch_ms:.1f} ms",
        f"{pluralize(dropped, 'frame')} dropped as similar" if dropped else "",
        escape_controls(frames.note),
        note,
    ]
    return Section(title=result.name, facts="; ".join(filter(None, costs)), pictures=pictures)
