"""Runs that answer questions: `classify`, and most backfills."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from prefect import get_run_logger

from flows.run.context import Execute, Purpose
from flows.run.executors.local_executor import execute_locally
from flows.run.executors.remote_executor import execute_remotely
from flows.run.request import resolve_spec
from flows.run.spec import native_warning
from tasks.domain import RunSpec
from tasks.manifest.chunks import require_cuttable
from tasks.model.backend import backend_of, require_media
from tasks.model.prompts.ambiguity import find_ambiguous_jobs, load_tokenizer
from tasks.results.evaluation.routes import escalation_margin

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import Engine

    from flows.run.context import RunContext
    from flows.run.progress import Progress
    from flows.run.request import RunRequest
    from infra.settings import Settings
    from tasks.domain import Spec, WallClockProfile
    from tasks.manifest.table import JobTable
    from tasks.model.identity import ModelCard
    from tasks.plans.plan import Plan


class Questions(Purpose):
    """Answers multiple-choice questions."""

    has_questions = True

    def resolve(self, request: RunRequest, settings: Settings) -> tuple[ModelCard, Spec]:
        """Resolve the spec from the settings or an earlier run, and the run's overrides."""
        return resolve_spec(request, settings)

    def check_jobs(self, jobs: JobTable, spec: Spec, *, manifest: str, settings: Settings) -> None:
        """Check that jobs can be cut into chunks, and that the backend takes as many videos and images."""
        require_cuttable(jobs, _questions(spec), manifest=manifest)
        require_media(backend_of(settings), _questions(spec), jobs.media, settings)

    def check_backend(self, card: ModelCard, settings: Settings) -> None:
        """Check the backend of the settings."""
        if self.is_local(settings):
            backend_of(settings).check(card, settings)

    def doubts(self, request: RunRequest, settings: Settings, card: ModelCard) -> tuple[str, ...]:
        """Warn of a native sampler that is not known."""
        warning = native_warning(card, settings, request.overrides, base=request.questions_base)
        return (warning,) if warning else ()

    @contextmanager
    def ready(
        self, settings: Settings, *, card: ModelCard, spec: Spec, database: Engine, ledger: WallClockProfile
    ) -> Iterator[Execute]:
        """Make sure that the margin for escalation was fitted; the engine is loaded only for a plan."""
        del settings, card, ledger
        escalation_margin(database, _questions(spec))  # raises if the margin was never fitted
        yield _execute

    def warn_of_jobs(self, context: RunContext, selected: JobTable) -> str:
        """Warn of jobs whose choices cannot be told apart."""
        spec = _questions(context.spec)
        encode = load_tokenizer(context.card) if len(selected) else None
        found = find_ambiguous_jobs(selected.parts(), scoring=spec.choice_scoring, encode=encode) if encode else None
        if found:
            get_run_logger().warning("%s", found)
        return str(found or "")

    def is_local(self, settings: Settings) -> bool:
        """Return whether the executor is local."""
        return settings.run.executor == "local"


def _execute(plan: Plan, progress: Progress, context: RunContext, *, done_before: Sequence[int]) -> None:
    if context.settings.run.executor != "local":
        execute_remotely(plan, progress, context, done_before=done_before)
        return
    settings, database, run, spec = context.settings, context.database, context.run, _questions(context.spec)
    execute_locally(plan, progress, run=run, spec=spec, card=context.card, settings=settings, database=database)


def _questions(spec: Spec) -> RunSpec:
    assert isinstance(spec, RunSpec)
    return spec
