"""`reelabel classify`: answers a manifest, one question about many videos, or a recorded live session."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.console import print_line
from flows.cli.context import ready_to_run, running_services, running_store, startup_errors
from flows.cli.options import DryRun, IdFile, example, with_classify
from flows.cli.runs.run import run_flow_locally
from flows.cli.runs.summary import print_summary
from flows.cli.survey import print_forecast, progress
from flows.run.request import ClassifyRequest, QuestionOptions
from flows.run.spec import make_spec, require_model
from infra.database.connect import Role, connected
from infra.embedded import ServiceName, export
from infra.program import command_with_settings
from infra.settings import load_settings
from reelabel.errors import ConfigurationError
from reelabel.sampling.spec import EVERY
from reelabel.sources.object_info import absolute_uri
from reelabel.sources.object_store import ObjectStore
from reelabel.text import pluralize
from tasks.database.schema import prepare_database
from tasks.frame_cache.pool import video_store
from tasks.frame_cache.sealed_files import SealedFiles
from tasks.live.record.replay import write_jobs
from tasks.live.record.saved import find_session
from tasks.manifest.one_question import QuestionOnVideos
from tasks.model.backend import backend_of

if TYPE_CHECKING:
    from pydantic import BaseModel

    from infra.settings import Settings
    from tasks.live.record.saved import SavedSession
    from tasks.manifest.one_question import VideoJobs


@example("reelabel classify 's3://videos/jobs/*.parquet' --dataset animals")
@with_classify
def classify(
    source: Annotated[
        str,
        typer.Argument(
            metavar="MANIFEST|VIDEOS",
            help="Parquet file of jobs; with --prompt, a video or a folder of videos. Globs are allowed.",
        ),
    ] = "",
    *,
    prompt: Annotated[
        str | None,
        typer.Option(help="Instead of a manifest, a question about each video. Run it again to add new videos."),
    ] = None,
    choices: Annotated[
        str | None, typer.Option(help="Choices of --prompt, such as yes|no. Default: answers in words.")
    ] = None,
    session: Annotated[
        str | None,
        typer.Option(
            hidden=True,
            help="Rerun the questions of a recorded live session (id, prefix or 'last') on the same frames.",
        ),
    ] = None,
    options: Any,  # noqa: ANN401 - the fields of a request
    dry_run: DryRun = False,
    id_file: IdFile = None,
) -> None:
    """Label the jobs of a manifest, or ask one question about each video of a folder; valid labels are skipped."""
    if session is not None:
        if source or prompt or choices or dry_run or options.keep_going:
            raise ConfigurationError("--session takes no manifest, no videos, no --dry-run and no --keep-going.")
        raise typer.Exit(_classify_session(session, options))
    jobs = _Jobs(source=source, question=QuestionOnVideos.of(source, prompt, choices), options=options)
    raise typer.Exit(_forecast(jobs) if dry_run else _run(jobs, id_file))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Jobs:
    source: str
    question: QuestionOnVideos | None
    options: BaseModel

    def find_videos(self) -> VideoJobs | None:
        """List the videos of the question, and print those left out; return None for a manifest."""
        if self.question is None:
            return None
        with running_store(self.source) as settings:
            found = self.question.find_videos(video_store(settings))
        for note in found.notes:
            print_line(note)
        return found

    def request(self, videos: VideoJobs | None, settings: Settings) -> ClassifyRequest:
        uri = absolute_uri(self.source)
        if videos is not None:
            assert settings.store.uri is not None
            uri = videos.write(ObjectStore(settings.store, settings.web), settings.store.uri)
            print_line(f"The manifest of {pluralize(len(videos.jobs), 'video')}: {uri}")
        return ClassifyRequest.of(manifest=uri, **dict(self.options))

    @property
    def command(self) -> str:
        question: dict[str, str] = {}
        if self.question:
            question = {"prompt": self.question.prompt, "choices": _listed(self.question.choices)}
        return command_with_settings("classify", self.source, **question, options=self.options)


def _listed(choices: tuple[str, ...]) -> str:
    """Return choices as the option takes them, separated by bars if it would read the same."""
    plain = "|".join(choices)
    is_read_so = not plain.startswith("[") and tuple(map(str.strip, plain.split("|"))) == (choices or ("",))
    return plain if is_read_so else json.dumps(choices, ensure_ascii=False)


def _run(jobs: _Jobs, id_file: str | None) -> int:
    """Classify in this process; return the exit code, which is 1 also if names of videos cannot be used."""
    videos = jobs.find_videos()
    # Checked before services are started.
    require_model("classify", jobs.request(None, load_settings()).parameters, load_settings())
    with ready_to_run() as settings:
        code = print_summary(settings, run_flow_locally(jobs.request(videos, settings), settings, id_file=id_file))
    return 1 if videos and videos.left_out else code


def _forecast(jobs: _Jobs) -> int:
    videos = jobs.find_videos()
    with running_services(ServiceName.POSTGRES, ServiceName.S3) as settings:
        with startup_errors():
            prepare_database(settings.database)
        os.environ.update(export(settings))
        from flows.run.flow_run import render_request  # noqa: PLC0415 - Prefect reads its environment
        from flows.run.forecast import forecast  # noqa: PLC0415
        from flows.run.questions import prepare_questions  # noqa: PLC0415

        request = render_request(jobs.request(videos, settings), None)
        with progress() as note:
            found = forecast(request, settings, prepare_questions, host=socket.gethostname(), note=note)
    code = print_forecast(found, again=jobs.command)
    return 1 if videos and videos.left_out else code


def _classify_session(session: str, options: Any) -> int:  # noqa: ANN401 - the fields of a request
    overrides: QuestionOptions = options.overrides
    with ready_to_run() as settings:
        with connected(settings.database, Role.READER) as engine:
            found = find_session(engine, session)
        shows_all = overrides.sampling.sampler is None and overrides.sampling.num_frames is None
        overrides = options_of_session(found, overrides)
        # As the run does, so that faults of the model or the options are reported before anything is written.
        model_info = backend_of(settings).model_info(overrides.model, settings)
        spec = make_spec(model_info, settings, overrides)
        limits = {"max_pixels": spec.sampling.max_pixels, "max_video_pixels": model_info.max_video_pixels}
        jobs = write_jobs(found, SealedFiles.of(settings.store), **limits if shows_all else {})
        print_line(str(jobs))
        dataset = options.dataset or f"live-{found.row['session_id']}"
        changed = {"manifest": jobs.manifest_uri, "dataset": dataset, "overrides": overrides}
        request = ClassifyRequest.of(**dict(options) | changed)
        return print_summary(settings, run_flow_locally(request, settings))


def options_of_session(session: SavedSession, overrides: QuestionOptions) -> QuestionOptions:
    """Return options with the system prompt of a session and all its frames, unless they have their own."""
    system_prompt = overrides.prompts.system_prompt or session.row["config"].get("system_prompt")
    prompts = overrides.prompts.model_copy(update={"system_prompt": system_prompt})
    sampling = overrides.sampling
    if sampling.sampler is None and sampling.num_frames is None:  # every frame of a question's video is a keyframe
        sampling = sampling.model_copy(update={"sampler": "keyframes", "num_frames": EVERY})
    return overrides.model_copy(update={"prompts": prompts, "sampling": sampling})
