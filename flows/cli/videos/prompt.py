"""`reelabel prompt`: the exact prompt of a job."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import polars as pl
import typer
from rich.text import Text

from flows.cli.console import ERRORS, OUT, print_error, print_json, print_line, print_warning
from flows.cli.context import find_run, open_database, running_services
from flows.cli.options import example, with_overrides
from flows.cli.videos.frames import fetch_frames
from flows.run.request import QuestionOptions  # noqa: TC001 - defines a command's options
from flows.run.spec import engine_settings, make_spec, native_warning
from infra.embedded import ServiceName
from reelabel.errors import ConfigurationError
from reelabel.frames.pixels import jpeg_round_trip
from reelabel.integrations.vllm.video_input import video_input
from reelabel.result import Frames
from reelabel.sources.object_info import absolute_uri, redact_uri
from reelabel.sources.object_store import ObjectStore
from reelabel.text import escape_controls, pluralize
from reelabel_engine.protocol import PreviewRequest
from tasks.domain import MediaCounts, views_of
from tasks.domain.chunks import cut_job, split_chunk_id
from tasks.domain.passes import sampling_of_pass
from tasks.frame_cache.extractor import check_image
from tasks.frame_cache.look import look_at
from tasks.frame_cache.pool import decode_pool
from tasks.manifest.digests import rows_to_jobs
from tasks.manifest.table import open_jobs
from tasks.model.backend import backend_of
from tasks.model.engine.process import preview_prompt
from tasks.model.engine.vllm_backend import engine_config
from tasks.model.prompts.prompt import build_question
from tasks.survey.cost import stated_length_s
from tasks.survey.take import index_reader

if TYPE_CHECKING:
    from infra.settings import Settings
    from reelabel.integrations.vllm.video_input import Video
    from reelabel.sampling.options import Sampling
    from reelabel_engine.protocol import RenderedPrompt
    from tasks.domain import Job, View


class PromptPreview(NamedTuple):
    """A job's prompt in the first of its `orders` of choices; `times_s` has the frames of each video and image."""

    job: Job
    orders: int
    rendered: RenderedPrompt
    times_s: list[list[float]]


@example("reelabel prompt clip-7-colour --manifest jobs.parquet")
@with_overrides
def prompt(
    job_id: Annotated[str, typer.Argument(help="Id of a job in the manifest, or of one of its chunks.")],
    *,
    manifest: Annotated[str | None, typer.Option(help="Default: the manifest of the last run.")] = None,
    overrides: QuestionOptions,
    json: Annotated[bool, typer.Option("--json", help="Print it in full, as JSON.")] = False,
) -> None:
    """Print the exact prompt of a job, token by token; no weights are loaded."""
    manifest = absolute_uri(manifest) if manifest else _last_manifest()
    with running_services(ServiceName.S3) as settings:
        shown = _render(job_id, manifest, overrides, settings)
    if json:
        print_json(_facts(shown))
    else:
        _print_prompt(shown)
    for refusal in shown.rendered.refusals:
        print_error(refusal.code, refusal.message)
    raise typer.Exit(1 if shown.rendered.refusals else 0)


def _last_manifest() -> str:
    with open_database() as (_, engine):
        return str(find_run(engine, "last")["manifest_uri"])


def _find(job_id: str, manifest: str, settings: Settings) -> Job:
    objects = ObjectStore(settings.store, settings.web)
    with open_jobs(manifest, objects, only=pl.Series("job_id", [job_id])) as table:
        found = [job for part in table.parts() for job in rows_to_jobs(part)]
    if found:
        return found[0]
    raise ConfigurationError(f"{manifest} has no job {job_id}; check the id, or use another --manifest.")


def _find_chunk(chunk_id: str, chunk_s: float, manifest: str, settings: Settings) -> Job:
    """Find a job's chunk by the length of its video; the first one if the id is the job's."""
    job_id, number = split_chunk_id(chunk_id)
    job = replace(_find(job_id, manifest, settings), chunk_s=chunk_s)
    with decode_pool(settings, processes=1) as pool:
        reader = index_reader(settings, pool)
        chunks = cut_job(job, stated_length_s(look_at(reader, job.video_uri), reader.limits)).chunks
    if (number or 0) < len(chunks):
        return chunks[number or 0]
    raise ConfigurationError(
        f"{chunk_id} is not a chunk: {job_id} has {pluralize(len(chunks), 'chunk')}, "
        f"{chunks[0].job_id} to {chunks[-1].job_id}."
    )


def _render(job_id: str, manifest: str, overrides: QuestionOptions, settings: Settings) -> PromptPreview:
    model_info = backend_of(settings).model_info(overrides.model, settings)
    if model_info.identity.served_at:
        raise ConfigurationError("The server's model has no local files to render prompts with; set model.name.")
    spec = make_spec(model_info, settings, overrides)
    print_warning(native_warning(model_info, settings, overrides))
    with ERRORS.status("Extracting the frames"):
        chunk_s = spec.chunk_s
        job = _find_chunk(job_id, chunk_s, manifest, settings) if chunk_s else _find(job_id, manifest, settings)
        shown = tuple(_frames(view, spec.sampling, settings) for view in views_of(job, spec.sampling))
    question, media = build_question(job, spec), MediaCounts.of(job.shown)
    config = engine_config(model_info, engine_settings(settings, spec), media=media)
    request = PreviewRequest(config=config, question=question, media=shown)
    with ERRORS.status("Loading the model's processor"):
        rendered = preview_prompt(request, python=settings.model.python)
    times_s = [[round(index / each["fps"], 3) for index in each["frames_indices"]] for _, each in shown]
    return PromptPreview(job, 1 + len(question.permutations), rendered, times_s)


def _frames(view: View, sampling: Sampling, settings: Settings) -> Video:
    sampling = sampling_of_pass(sampling, view.shown)
    frames = fetch_frames(view.video_uri, settings, sampling, segment=view.segment)
    if view.shown == "image":
        check_image(view.video_uri, frames)
    if sampling.jpeg_quality:
        frames = Frames.of(jpeg_round_trip(frames.unique, quality=sampling.jpeg_quality), frames.selection)
    return video_input(frames)


def _facts(shown: PromptPreview) -> dict[str, Any]:
    job, rendered = shown.job, shown.rendered
    tokens = [[{"id": token, "text": text} for token, text in found.items()] for found in rendered.choices]
    tokens = tokens or [[] for _ in job.choices]
    media = [
        {"kind": medium.kind, "uri": redact_uri(medium.uri), "frame_times_s": times}
        for medium, times in zip(job.shown, shown.times_s, strict=True)
    ]
    return {
        "job_id": job.job_id,
        "video_uri": redact_uri(job.video_uri),
        **({"media": media} if job.media else {}),
        "prompt": rendered.text,
        "prompt_tokens": rendered.tokens,
        "video_tokens": rendered.video_tokens,
        "max_model_len": rendered.max_model_len,
        "orders": shown.orders,
        "choices": [{"text": text, "tokens": found} for text, found in zip(job.choices, tokens, strict=True)],
        "frame_times_s": next(each["frame_times_s"] for each in media if each["kind"] == "video"),
        "refusals": [{"code": refusal.code, "message": refusal.message} for refusal in rendered.refusals],
    }


def _print_prompt(shown: PromptPreview) -> None:
    rendered = shown.rendered
    for run in rendered.runs:
        OUT.print(Text(escape_controls(run.text, keep="\n\t")), end="", soft_wrap=True)
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
