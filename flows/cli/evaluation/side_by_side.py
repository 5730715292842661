"""`reelabel frames --compare keyframes,uniform,native`: what each sampler shows of one video, and what it costs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from flows.cli.console import ERRORS, print_line
from flows.compare.candidates import format_sampling, parse_sampler
from flows.run.request import QuestionOptions
from flows.run.spec import make_spec
from infra.settings import SamplingOptions
from reelabel.coverage import CoverageThresholds
from reelabel.errors import ConfigurationError, VideoError
from reelabel.frames.fetch import stat_video
from reelabel.frames.pixels import jpeg_round_trip
from reelabel.sampling.registry import NATIVE, find_sampler
from reelabel.sources.object_info import redact_uri, scheme_of
from reelabel.text import pluralize, printable
from tasks.frame_cache.pool import decode_pool, uncached_fetcher, video_store
from tasks.frame_cache.preview import frames_as_json
from tasks.frame_cache.sheet import Section, draw_sheet, picture_frames

if TYPE_CHECKING:
    from pathlib import Path

    from infra.settings import Settings
    from reelabel.frames.fetch import FetchedFrames
    from reelabel.sampling.options import Sampling
    from reelabel.segment import Segment
    from reelabel.sources.object_info import ObjectInfo
    from tasks.model.identity import ModelCard

VLLM = "vllm"
_MAX_SAMPLERS = 10
_MAX_TIMES = 16
_FORM = f"{VLLM}, or samplers such as keyframes,uniform:16,native"


def parse_samplers(text: str, asked: SamplingOptions) -> dict[str, SamplingOptions]:
    """Parse a list of samplers, each with its options: `keyframes,qwen3_vl,fps=4` names two.

    Return their options by the sampler as written; `asked` are those of samplers that do not name their own.
    """
    parts: list[str] = []
    for part in text.replace(" ", "").split(","):
        if "=" in part and parts:
            parts[-1] += f",{part}"
        else:
            parts.append(part)
    if not all(parts) or VLLM in parts:
        raise ConfigurationError(f"--compare takes either {_FORM}; not {text!r}.")
    if len(set(parts)) > _MAX_SAMPLERS:
        raise ConfigurationError(f"--compare takes at most {_MAX_SAMPLERS} samplers, not {len(set(parts))}.")
    usual = asked.model_dump(exclude_none=True)
    return {part: SamplingOptions(**usual | parse_sampler(part).model_dump(exclude_none=True)) for part in parts}


def resolve_samplers(asked: dict[str, SamplingOptions], card: ModelCard, settings: Settings) -> dict[str, Sampling]:
    """Return the sampling of each sampler of a list, by the name in which it is shown."""
    found = {}
    for name, options in asked.items():
        try:
            if options.sampler != NATIVE:
                find_sampler(str(options.sampler))
            sampling = make_spec(card, settings, QuestionOptions(sampling=options)).sampling
        except (ConfigurationError, ValueError) as error:
            raise ConfigurationError(f"--compare {name}: {error}") from None
        title = format_sampling(sampling)
        found[f"{NATIVE}: {title}" if options.sampler == NATIVE else title] = sampling
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What one sampler shows of a video.

    Attributes:
        section: Its section of the sheet.
        facts: As JSON values, `error` instead if it fails.
    """

    section: Section
    facts: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SideBySide:
    """What several samplers show of one video."""

    info: ObjectInfo
    shown: tuple[Shown, ...]

    @property
    def title(self) -> str:
        """The video, without passwords and invisible characters."""
        return printable(redact_uri(self.info.uri))

    @property
    def video_facts(self) -> str:
        """What is known of the video."""
        facts = next(each.facts for each in self.shown if "error" not in each.facts)
        total = "" if facts["total_frames"] is None else f" in {pluralize(facts['total_frames'], 'frame')}"
        size = f"{facts['native_width_px']}x{facts['native_height_px']}"
        keyframes = pluralize(facts["keyframes_in_file"], "keyframe")
        return f"{keyframes}{total}, {facts['duration_s']:.2f} s, {size}, {pluralize(self.info.size_bytes, 'byte')}"

    def save(self, path: Path) -> None:
        """Save the sheet; the suffix selects the format."""
        draw_sheet(self.title, self.video_facts, [each.section for each in self.shown]).save(path)

    def as_json(self) -> dict[str, Any]:
        """Return the facts as JSON values."""
        samplers = [{"name": each.section.title} | each.facts for each in self.shown]
        return {"video_uri": redact_uri(self.info.uri), "size_bytes": self.info.size_bytes, "samplers": samplers}

    def print(self) -> None:
        """Print each sampler with its costs, and the times of its frames."""
        print_line(f"{self.video_facts}.")
        for each in self.shown:
            print_line((each.section.title, "bold"))
            print_line(f"  {each.section.error or each.section.facts}")
            if each.section.pictures:
                print_line("  " + ", ".join(_times(each.facts)))


def _times(facts: dict[str, Any]) -> list[str]:
    counts = Counter(pick["time_s"] for pick in facts["picks"])
    times = [f"{time_s:.3f} s" + (f" ({count}x)" if count > 1 else "") for time_s, count in counts.items()]
    return times if len(times) <= _MAX_TIMES else [*times[:_MAX_TIMES], f"and {len(times) - _MAX_TIMES:,} more"]


def show_side_by_side(
    video: str, samplings: dict[str, Sampling], settings: Settings, *, as_stored: bool, segment: Segment
) -> SideBySide:
    """Extract what each sampler shows of a video, or of a segment of it; a sampler may fail alone."""
    shown = []
    info = stat_video(video_store(settings), video, allow_roots=settings.extract.allow_roots)
    is_local = scheme_of(info.uri) in {None, "file"}
    faults: list[VideoError] = []
    with decode_pool(settings, processes=1) as pool, ERRORS.status("Extracting the frames") as status:
        for name, sampling in samplings.items():
            status.update(f"Extracting the frames of {name}")
            fetcher = uncached_fetcher(settings, pool, sampling, native=as_stored, segment=segment)
            try:
                fetched = fetcher.fetch(info)
            except VideoError as error:
                faults.append(error)
                shown.append(_failed(name, error))
            else:
                keeps_jpeg = None if as_stored else sampling.jpeg_quality
                thresholds = CoverageThresholds.of(sampling if sampling.sampler == "auto" else settings.sampling)
                shown.append(_shown(name, _as_shown(fetched, keeps_jpeg), thresholds, is_local=is_local))
    if len(faults) == len(shown):
        raise faults[0]
    return SideBySide(info=info, shown=tuple(shown))


def _failed(name: str, error: VideoError) -> Shown:
    section = Section(title=name, error=printable(error.message))
    return Shown(section=section, facts={"error": {"code": error.code, "message": error.message}})


def _as_shown(fetched: FetchedFrames, jpeg_quality: int | None) -> FetchedFrames:
    """Return frames as the model sees them: after JPEG, if the sampling says so."""
    if not jpeg_quality:
        return fetched
    images = jpeg_round_trip(fetched.keyframes.images, quality=jpeg_quality)
    return replace(fetched, keyframes=replace(fetched.keyframes, images=images))


def _shown(name: str, fetched: FetchedFrames, thresholds: CoverageThresholds, *, is_local: bool) -> Shown:
    frames = fetched.keyframes
    pictures, note = picture_frames(frames)
    # FFmpeg reads local files itself, and does not say how much.
    read = {} if is_local else {"bytes_fetched": fetched.bytes_fetched, "fetch_ms": round(fetched.fetch_ms, 3)}
    section = Section(title=name, facts=_costs(fetched, note, is_local=is_local), pictures=pictures)
    return Shown(section=section, facts=frames_as_json(frames, thresholds) | read)


def _costs(fetched: FetchedFrames, note: str, *, is_local: bool) -> str:
    frames = fetched.keyframes
    total = "" if frames.total_frames is None else f" of {frames.total_frames:,}"
    parts = [
        f"{pluralize(len(frames.picks), 'frame')} shown, {len(frames.images):,} distinct",
        f"{frames.frames_decoded:,}{total} decoded by {frames.method} in {frames.decode_ms:.1f} ms",
        "" if is_local else f"{pluralize(fetched.bytes_fetched, 'byte')} read in {fetched.fetch_ms:.1f} ms",
        f"{pluralize(frames.dropped_as_similar, 'frame')} dropped as similar" if frames.dropped_as_similar else "",
        printable(frames.reason),
        note,
    ]
    return "; ".join(filter(None, parts))
