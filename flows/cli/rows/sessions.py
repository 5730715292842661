"""`reelabel classify --session`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flows.cli.console import print_line
from flows.cli.context import ready_to_run
from flows.cli.runs.run import run_flow_locally
from flows.cli.runs.summary import print_summary
from flows.run.request import ClassifyRequest
from flows.run.spec import make_spec
from infra.database.connect import Role, connected
from reelabel.sampling.spec import EVERY
from tasks.frame_cache.sealed_files import SealedFiles
from tasks.live.record.replay import write_jobs
from tasks.live.record.stored import find_session
from tasks.model.backend import backend_of

if TYPE_CHECKING:
    from flows.run.request import QuestionOptions
    from tasks.live.record.stored import StoredSession


def classify_session(session: str, given: Any) -> int:  # noqa: ANN401 - the fields of a request
    """Ask a session's questions again in this process and print the summary; return the exit code."""
    overrides: QuestionOptions = given.overrides
    with ready_to_run() as settings:
        with connected(settings.database, Role.READER) as engine:
            found = find_session(engine, session)
        shows_all = overrides.sampling.sampler is None and overrides.sampling.num_frames is None
        overrides = asked_as(found, overrides)
        # As the run does; what is wrong with the model or the options is then reported before anything is written.
        card = backend_of(settings).card(overrides.model, settings)
        spec = make_spec(card, settings, overrides)
        limits = {"max_pixels": spec.sampling.max_pixels, "max_video_pixels": card.max_video_pixels}
        jobs = write_jobs(found, SealedFiles.of(settings.store), **limits if shows_all else {})
        print_line(str(jobs))
        dataset = given.dataset or f"live-{found.row['session_id']}"
        changed = {"manifest": jobs.manifest_uri, "dataset": dataset, "overrides": overrides}
        request = ClassifyRequest.of(**dict(given) | changed)
        return print_summary(settings, run_flow_locally(request, settings))


def asked_as(session: StoredSession, overrides: QuestionOptions) -> QuestionOptions:
    """Return options with the system prompt of a session and all its frames, unless they have their own."""
    system_prompt = overrides.prompts.system_prompt or session.row["config"].get("system_prompt")
    prompts = overrides.prompts.model_copy(update={"system_prompt": system_prompt})
    sampling = overrides.sampling
    if sampling.sampler is None and sampling.num_frames is None:  # every frame of a question's video is a keyframe
        sampling = sampling.model_copy(update={"sampler": "keyframes", "num_frames": EVERY})
    return overrides.model_copy(update={"prompts": prompts, "sampling": sampling})
