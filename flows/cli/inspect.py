"""`reelabel frames` and `reelabel prompt`."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
from rich.text import Text

from flows.cli.console import ERRORS, OUT, print_error, print_line, require_parent_folder, require_sheet
from flows.cli.context import open_database, running_services
from flows.cli.evaluation.comparison import compare_with_vllm, comparison_as_json, print_comparison, sampling_to_compare
from flows.cli.evaluation.side_by_side import VLLM, parse_samplers, resolve_samplers, show_side_by_side
from flows.run.request import QuestionOptions
from flows.run.spec import engine_settings, make_spec, native_warning
from infra.embedded import ServiceName
from reelabel.coverage import CoverageThresholds
from reelabel.errors import ConfigurationError
from reelabel.frames.extractor import require_image
from reelabel.frames.fetch import stat_video
from reelabel.frames.pixels import jpeg_round_trip
from reelabel.integrations.vllm.video_input import video_input
from reelabel.sampling.passes import sampling_of_pass
from reelabel.segment import WHOLE
from reelabel.sources.object_info import absolute_uri, redact_uri, scheme_of
from reelabel.sources.object_store import ObjectStore
from reelabel.text import pluralize, printable
from reelabel_engine.protocol import PreviewRequest
from tasks.domain import MediaCounts, views_of
from tasks.domain.chunks import cut_job, split_chunk_id
from tasks.frame_cache.pool import decode_pool, uncached_fetcher, video_store
from tasks.frame_cache.preview import frames_as_json, save_contact_sheet, save_npz
from tasks.manifest.digests import rows_to_jobs
from tasks.manifest.table import open_jobs
from tasks.model.backend import backend_of
from tasks.model.engine.prompt_preview import preview_prompt
from tasks.model.engine.vllm_backend import engine_config
from tasks.model.prompts.prompt import build_question
from tasks.results.runs import find_run
from tasks.survey.chunks import stated_length_s
from tasks.survey.take import index_reader

if TYPE_CHECKING:
    from infra.settings import SamplingOptions, Settings
    from reelabel.frames.fetch import FetchedFrames
    from reelabel.integrations.vllm.video_input import Video
    from reelabel.sampling.options import Sampling
    from reelabel.segment import Segment
    from reelabel_engine.protocol import RenderedPrompt
    from tasks.domain import Job, View


def fetch_frames(
    video: str,
    settings: Settings,
    sampling: Sampling,
    *,
    native: bool = False,
    every: bool = False,
    segment: Segment = WHOLE,
) -> tuple[FetchedFrames, int]:
    """Extract frames in a decoding process, at the model's input size; return them and the video's size in bytes.

    Args:
        video: Path or URI.
        settings: Limits and store access.
        sampling: Which frames to take, unless `every`.
        native: Leave frames unscaled and unrotated.
        every: Take every keyframe.
        segment: The part of the video to sample.

    Raises:
        VideoError: The video cannot be used.
    """
    info = stat_video(video_store(settings), video, allow_roots=settings.extract.allow_roots)
    with decode_pool(settings, processes=1) as pool:
        fetcher = uncached_fetcher(settings, pool, sampling, native=native, every=every, segment=segment)
        return fetcher.fetch(info), info.size_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOptions:
    """Output options; see the command's help."""

    every: bool
    as_stored: bool
    as_json: bool
    npz: str | None
    sheet: str | None
    compare: str | None = None

    def require_targets(self) -> None:
        """Make sure, before decoding, that the files can be written.

        Raises:
            ConfigurationError: A folder is missing, or the sheet's suffix is not an image format.
        """
        if self.npz:
            require_parent_folder(self.npz)
        if self.sheet:
            require_sheet(self.sheet)


def show_frames(video: str, view: OutputOptions, *, segment: Segment, sampling: SamplingOptions) -> None:
    """Extract the frames of a video, or of a segment of it, as a run would, and print or save them.

    Raises:
        ConfigurationError: The options conflict, or a file cannot be written.
        VideoError: The video cannot be used.
    """
    _require_options(video, view, segment, sampling)
    if view.compare in {None, VLLM}:
        _show_sampler(video, view, segment=segment, sampling=sampling)
    else:
        _show_samplers(video, view, segment=segment, sampling=sampling)


def _show_sampler(video: str, view: OutputOptions, *, segment: Segment, sampling: SamplingOptions) -> None:
    """Extract what one sampler shows, and print or save it."""
    compared = None
    with running_services(*([ServiceName.S3] if video.startswith("s3://") else [])) as settings:
        card = backend_of(settings).card(None, settings)
        if view.compare:
            asked = sampling_to_compare(card, settings, sampling)
        else:
            asked = make_spec(card, settings, QuestionOptions(sampling=sampling)).sampling
        _print_warning(native_warning(card, settings, QuestionOptions(sampling=sampling)))
        fetched, size_bytes = fetch_frames(
            video, settings, asked, native=view.as_stored, every=view.every, segment=segment
        )
        keyframes = fetched.keyframes
        if view.compare:
            compared = compare_with_vllm(video, keyframes, card, settings, asked)
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
        **({"compared": comparison_as_json(compared)} if compared else {}),
    }
    if view.as_json:
        print(json.dumps(facts, indent=2))  # noqa: T201 - for programs: not wrapped
    else:
        _print_frames(facts, is_local=scheme_of(video) in {None, "file"})
        if compared:
            print_comparison(compared, keyframes)


def _show_samplers(video: str, view: OutputOptions, *, segment: Segment, sampling: SamplingOptions) -> None:
    """Extract what each of several samplers shows, and print or save it."""
    with running_services(*([ServiceName.S3] if video.startswith("s3://") else [])) as settings:
        card = backend_of(settings).card(None, settings)
        asked = parse_samplers(str(view.compare), sampling)
        samplings = resolve_samplers(asked, card, settings)
        for warning in {
            native_warning(card, settings, QuestionOptions(sampling=options)) for options in asked.values()
        }:
            _print_warning(warning)
        found = show_side_by_side(video, samplings, settings, as_stored=view.as_stored, segment=segment)
    if view.sheet:
        found.save(Path(view.sheet))
    if view.as_json:
        print(json.dumps(found.as_json(), indent=2))  # noqa: T201 - for programs: not wrapped
    else:
        found.print()


def _print_warning(warning: str) -> None:
    if warning:
        ERRORS.print(f"{warning}.", style="yellow", markup=False, soft_wrap=True)


def _require_options(video: str, view: OutputOptions, segment: Segment, sampling: SamplingOptions) -> None:
    """Check the options before anything is decoded.

    Raises:
        ConfigurationError: They conflict, or a file cannot be written.
    """
    if not video:
        raise ConfigurationError("No video given; use a path or a URI.")
    if view.every and (sampling.num_frames or sampling.sampler):
        raise ConfigurationError("--all takes every keyframe and cannot be combined with --num-frames or --sampler.")
    if segment.end_s is not None and segment.end_s <= (segment.start_s or 0.0):
        raise ConfigurationError(
            f"--end-s {segment.end_s:g} must be greater than --start-s {segment.start_s or 0.0:g}."
        )
    if view.compare not in {None, VLLM}:
        parse_samplers(str(view.compare), sampling)
        if view.every or view.npz or sampling.sampler:
            raise ConfigurationError("--compare names the samplers itself; leave out --all, --npz and --sampler.")
    elif view.compare and (view.every or not segment.is_whole):
        raise ConfigurationError("vLLM's loaders sample whole videos; leave out --all, --start-s and --end-s.")
    view.require_targets()


def _coverage_line(facts: dict[str, Any]) -> str:
    """Say whether the video's keyframes cover it."""
    against = ", ".join(facts["coverage"])
    if facts["longest_gap_s"] is None:
        return f"Keyframes may not be enough: {against}."
    where = f"longest gap {facts['longest_gap_s']:.2f} s, {facts['keyframe_coverage']:.0%} of the video near a keyframe"
    return f"Keyframes may not be enough: {against} ({where})." if against else f"Keyframes are enough: {where}."


def _print_frames(facts: dict[str, Any], *, is_local: bool) -> None:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptPreview:
    """A job's prompt.

    Attributes:
        orders: Number of orders in which its choices are shown; `rendered` is the first.
        times_s: Timestamp of each frame as given to the model, in seconds, for each video and image.
    """

    job: Job
    orders: int
    rendered: RenderedPrompt
    times_s: list[list[float]]


def show_prompt(job_id: str, overrides: QuestionOptions, *, manifest: str | None, as_json: bool) -> int:
    """Print the exact prompt of a job; return the exit code, 1 if the prompt would be refused.

    Raises:
        ConfigurationError: The manifest has no such job.
        VideoError: The job's video cannot be used.
    """
    manifest = absolute_uri(manifest) if manifest else _last_manifest()
    with running_services(ServiceName.S3) as settings:
        shown = _render(job_id, manifest, overrides, settings)
    if as_json:
        print(json.dumps(_facts(shown), indent=2))  # noqa: T201 - for programs: not wrapped
    else:
        _print_prompt(shown)
    for refusal in shown.rendered.refusals:
        print_error(refusal.code, refusal.message)
    return 1 if shown.rendered.refusals else 0


def _last_manifest() -> str:
    with open_database(ServiceName.POSTGRES) as (_, engine):
        return str(find_run(engine, "last")["manifest_uri"])


def _find(job_id: str, manifest: str, settings: Settings) -> Job:
    objects = ObjectStore(settings.store, settings.web)
    with open_jobs(manifest, objects, only=pl.Series("job_id", [job_id])) as table:
        found = [job for part in table.parts() for job in rows_to_jobs(part)]
    if found:
        return found[0]
    raise ConfigurationError(f"{manifest} has no job {job_id}; check the id, or name another manifest with --manifest.")


def _find_chunk(chunk_id: str, chunk_s: float, manifest: str, settings: Settings) -> Job:
    """Find a job's chunk, by the length of its video; the first one if the id names the job alone."""
    job_id, number = split_chunk_id(chunk_id)
    job = replace(_find(job_id, manifest, settings), chunk_s=chunk_s)
    with decode_pool(settings, processes=1) as pool:
        reader = index_reader(settings, pool)
        chunks = cut_job(job, stated_length_s(reader.look(job.video_uri), reader.limits)).chunks
    if (number or 0) < len(chunks):
        return chunks[number or 0]
    raise ConfigurationError(
        f"{chunk_id} is not a chunk: {job_id} has {pluralize(len(chunks), 'chunk')}, "
        f"{chunks[0].job_id} to {chunks[-1].job_id}."
    )


def _render(job_id: str, manifest: str, overrides: QuestionOptions, settings: Settings) -> PromptPreview:
    card = backend_of(settings).card(overrides.model, settings)
    if card.identity.served_at:
        raise ConfigurationError("The server's model has no local files to render prompts with; set model.name.")
    spec = make_spec(card, settings, overrides)
    _print_warning(native_warning(card, settings, overrides))
    with ERRORS.status("Extracting the frames"):
        chunk_s = spec.chunk_s
        job = _find_chunk(job_id, chunk_s, manifest, settings) if chunk_s else _find(job_id, manifest, settings)
        shown = tuple(_frames(view, spec.sampling, settings) for view in views_of(job, spec.sampling))
    question, media = build_question(job, spec), MediaCounts.of(job.shown)
    config = engine_config(card, engine_settings(settings, spec), media=media)
    request = PreviewRequest(config=config, question=question, media=shown)
    with ERRORS.status("Loading the model's processor"):
        rendered = preview_prompt(request, timeout_s=settings.model.start_timeout_s, python=settings.model.python)
    times_s = [[round(index / each["fps"], 3) for index in each["frames_indices"]] for _, each in shown]
    return PromptPreview(job=job, orders=1 + len(question.others), rendered=rendered, times_s=times_s)


def _frames(view: View, sampling: Sampling, settings: Settings) -> Video:
    """Extract the frames of a view as the model's processor takes them."""
    frames = fetch_frames(view.video_uri, settings, sampling_of_pass(sampling, view.shown), segment=view.segment)[
        0
    ].keyframes
    if view.shown == "image":
        require_image(view.video_uri, frames)
    if sampling.jpeg_quality:
        frames = replace(frames, images=jpeg_round_trip(frames.images, quality=sampling.jpeg_quality))
    return video_input(frames)


def _facts(shown: PromptPreview) -> dict[str, Any]:
    job, rendered = shown.job, shown.rendered
    tokens = [[{"id": token, "text": text} for token, text in found.items()] for found in rendered.choices]
    tokens = tokens or [[] for _ in job.choices]
    return {
        "job_id": job.job_id,
        "video_uri": redact_uri(job.video_uri),
        **_several(shown),
        "prompt": rendered.text,
        "prompt_tokens": rendered.tokens,
        "video_tokens": rendered.video_tokens,
        "max_model_len": rendered.max_model_len,
        "orders": shown.orders,
        "choices": [{"text": text, "tokens": found} for text, found in zip(job.choices, tokens, strict=True)],
        "frame_times_s": next(
            times for medium, times in zip(job.shown, shown.times_s, strict=True) if medium.kind == "video"
        ),
        "refusals": [{"code": refusal.code, "message": refusal.message} for refusal in rendered.refusals],
    }


def _several(shown: PromptPreview) -> dict[str, Any]:
    """Return what a job shows besides one video."""
    if not shown.job.media:
        return {}
    media = zip(shown.job.media, shown.times_s, strict=True)
    return {
        "media": [
            {"kind": medium.kind, "uri": redact_uri(medium.uri), "frame_times_s": times} for medium, times in media
        ]
    }


def _print_prompt(shown: PromptPreview) -> None:
    rendered = shown.rendered
    for run in rendered.runs:
        OUT.print(Text(printable(run.text, keep="\n\t")), end="", soft_wrap=True)
        if run.repeats > 1:
            OUT.print(f"(x{run.repeats})", end="", style="dim")
    print_line()
    if rendered.tokens is not None and rendered.video_tokens is not None:
        text_tokens = rendered.tokens - rendered.video_tokens
        print_line(
            f"{pluralize(rendered.tokens, 'token')}: {rendered.video_tokens:,} of video, {text_tokens:,} of text; "
            f"the limit is {rendered.max_model_len:,}, including the answer."
        )
    if shown.orders > 1:
        print_line(f"Choices are shown in {shown.orders} orders; this is the first.")
    for medium, times_s in zip(shown.job.shown, shown.times_s, strict=True):
        uri, times = redact_uri(medium.uri), " ".join(f"{time_s:g}" for time_s in times_s)
        frames = f"{pluralize(len(times_s), 'frame')} of {uri}, at {times} s."
        print_line(f"The image {uri}." if medium.kind == "image" else frames)
    for text, found in zip(shown.job.choices, rendered.choices, strict=False):
        print_line(f"  {text}: " + ", ".join(f"{token!r} ({number})" for number, token in found.items()))
