"""`reelabel prompt`."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import polars as pl

from flows.asker import read_card
from flows.commands.fetched import fetch_frames
from flows.commands.opened import open_database, running_services
from flows.commands.terminal import ERRORS, OUT, print_error, print_line
from flows.engine_config import engine_config
from flows.spec import make_spec
from infra.embedded import ServiceName
from infra.errors import ConfigurationError
from infra.objects import ObjectStore
from infra.uri import absolute_uri, redact_uri
from infra.wording import pluralize
from tasks.domain import View
from tasks.domain.passes import sampling_of_pass
from tasks.frames.pixels import jpeg_round_trip
from tasks.manifest.digests import rows_to_jobs
from tasks.manifest.table import open_jobs
from tasks.model.prompt import build_question
from tasks.model.rendered import PreviewRequest, preview_prompt
from tasks.model.video_input import video_input
from tasks.results.runs import find_run

if TYPE_CHECKING:
    from infra.sampling_settings import SamplingOptions
    from infra.settings import PromptOptions, Settings
    from tasks.domain import Job
    from tasks.model.rendered import RenderedPrompt


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecOverrides:
    """Overrides of the spec; what is None or empty comes from the settings."""

    num_frames: int | None
    sampling: SamplingOptions
    prompts: PromptOptions
    model: str | None
    permutations: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptPreview:
    """A job's prompt.

    Attributes:
        orders: Number of orders in which its choices are shown; `rendered` is the first.
        times_s: Timestamp of each frame as given to the model, in seconds.
    """

    job: Job
    orders: int
    rendered: RenderedPrompt
    times_s: list[float]


def show_prompt(job_id: str, asking: SpecOverrides, *, manifest: str | None, as_json: bool) -> int:
    """Print the exact prompt of a job; return the exit code, 1 if the prompt would be refused.

    Raises:
        ConfigurationError: The manifest has no such job.
        VideoError: The job's video cannot be used.
    """
    manifest = absolute_uri(manifest) if manifest else _last_manifest()
    with running_services(ServiceName.S3) as settings:
        shown = _render(_find(job_id, manifest, settings), asking, settings)
    if as_json:
        print(json.dumps(_facts(shown), indent=2))  # noqa: T201 - for programs: not wrapped
    else:
        _print(shown)
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


def _render(job: Job, asking: SpecOverrides, settings: Settings) -> PromptPreview:
    card = read_card(asking.model, settings)
    if card.identity.served_at:
        raise ConfigurationError("The server's model has no local files to render prompts with; set model.name.")
    spec = make_spec(
        card,
        settings,
        num_frames=asking.num_frames,
        choice=asking.sampling,
        prompts=asking.prompts,
        permutations=asking.permutations,
    )
    with ERRORS.status("Extracting the frames"):
        view = View.of(job, spec.sampling)
        sampling = sampling_of_pass(spec.sampling, view.shown)
        frames = fetch_frames(job.video_uri, settings, sampling, segment=view.segment)[0].keyframes
    if spec.sampling.jpeg_quality:
        frames = replace(frames, images=jpeg_round_trip(frames.images, quality=spec.sampling.jpeg_quality))
    question, (pixels, metadata) = build_question(job, spec), video_input(frames)
    config = engine_config(card, settings, sampling=spec.sampling)
    request = PreviewRequest(config=config, question=question, video=(pixels, metadata))
    with ERRORS.status("Loading the model's processor"):
        rendered = preview_prompt(request, timeout_s=settings.model.start_timeout_s)
    times_s = [round(index / metadata["fps"], 3) for index in metadata["frames_indices"]]
    return PromptPreview(job=job, orders=1 + len(question.others), rendered=rendered, times_s=times_s)


def _facts(shown: PromptPreview) -> dict[str, Any]:
    job, rendered = shown.job, shown.rendered
    tokens = [[{"id": token, "text": text} for token, text in found.items()] for found in rendered.choices]
    tokens = tokens or [[] for _ in job.choices]
    return {
        "job_id": job.job_id,
        "video_uri": redact_uri(job.video_uri),
        "prompt": rendered.text,
        "prompt_tokens": rendered.tokens,
        "video_tokens": rendered.video_tokens,
        "max_model_len": rendered.max_model_len,
        "orders": shown.orders,
        "choices": [{"text": text, "tokens": found} for text, found in zip(job.choices, tokens, strict=True)],
        "frame_times_s": shown.times_s,
        "refusals": [{"code": refusal.code, "message": refusal.message} for refusal in rendered.refusals],
    }


def _print(shown: PromptPreview) -> None:
    rendered = shown.rendered
    for run in rendered.runs:
        OUT.print(run.text, end="", soft_wrap=True)
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
    times = " ".join(f"{time_s:g}" for time_s in shown.times_s)
    print_line(f"{pluralize(len(shown.times_s), 'frame')} of {redact_uri(shown.job.video_uri)}, at {times} s.")
    for text, found in zip(shown.job.choices, rendered.choices, strict=False):
        print_line(f"  {text}: " + ", ".join(f"{token!r} ({number})" for number, token in found.items()))
