"""The flows that run jobs: `classify` and `describe` a manifest, and `backfill` some of its jobs."""

from __future__ import annotations

import socket
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from prefect.runtime import flow_run

from flows.run.descriptions import prepare_descriptions
from flows.run.execute import execute_run, execute_scheduled
from flows.run.flow_run import name_of_current, scheduled_run_name
from flows.run.forecast import forecast
from flows.run.questions import prepare_questions
from flows.run.request import BackfillRequest, ClassifyRequest, DescribeRequest
from flows.run.result import completed_state
from flows.run.run_flow import run_flow
from flows.run.selection import JobSelector
from infra.settings import load_settings
from tasks.database.schema import prepare_database
from tasks.domain import DescribeSpec
from tasks.survey.take import note_nothing

if TYPE_CHECKING:
    from prefect import State

    from flows.run.forecast import Forecast
    from flows.run.run import Prepare
    from infra.settings import Settings
    from tasks.survey.take import Note


@run_flow(ClassifyRequest, name=lambda: scheduled_run_name("classify"), has_tasks=True)
def classify(request: ClassifyRequest) -> State[str]:
    """Answer every job of a manifest that has no valid label yet."""
    return execute_scheduled(request, prepare_questions)


@run_flow(DescribeRequest, name=lambda: scheduled_run_name("describe"), has_tasks=True)
def describe(request: DescribeRequest) -> State[str]:
    """Describe every video of a manifest that has no valid description yet: tags, caption, scenes."""
    return execute_scheduled(request, prepare_descriptions)


@run_flow(BackfillRequest, name=lambda: name_of_current("backfill"), has_tasks=True)
def backfill(request: BackfillRequest) -> State[str]:
    """Answer selected jobs of a manifest again, by id or by outcome.

    The spec is that of the last run of the whole manifest, of the one marked as its reference, or of the named run.
    Overrides make a new spec, whose answers are stored next to the earlier ones; descriptions keep theirs.
    """
    settings = load_settings()
    prepare_database(settings.database)
    if request.dry_run:
        return completed_state(forecast_backfill(request, settings, is_here=settings.run.executor == "local"))
    request, settings, prepare, selector = _of_earlier_run(request, settings)
    return completed_state(execute_run(request, settings, prepare, selector=selector))


def forecast_backfill(
    request: BackfillRequest, settings: Settings, *, is_here: bool, note: Note = note_nothing
) -> Forecast:
    """Say what a backfill would do, here or elsewhere; see `forecast`."""
    request, settings, prepare, selector = _of_earlier_run(request, settings, is_here=is_here, dry_run=True)
    host = socket.gethostname() if is_here else None
    return forecast(request, settings, prepare, selector=selector, host=host, note=note)


def _of_earlier_run(
    request: BackfillRequest, settings: Settings, *, is_here: bool = True, dry_run: bool = False
) -> tuple[BackfillRequest, Settings, Prepare[BackfillRequest], JobSelector]:
    """Take the dataset, the settings and the spec of the run that a backfill corrects."""
    selector = JobSelector.of(request, settings, own=UUID(flow_run.id) if flow_run.id else None)
    earlier = selector.earlier
    request = request.model_copy(update={"dataset": earlier.dataset if earlier.spec else request.dataset})
    if isinstance(earlier.spec, DescribeSpec):
        describing = partial(prepare_descriptions, base=earlier.spec, dry_run=dry_run)
        return request, earlier.restored(settings), describing, selector
    asking = partial(prepare_questions, base=earlier.spec, is_here=is_here)
    return request, earlier.restored(settings), asking, selector
