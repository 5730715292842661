"""The flow `survey`: profile the videos of a manifest before a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefect import get_run_logger
from prefect.artifacts import create_link_artifact, create_table_artifact
from prefect.runtime import flow_run
from pydantic import Field

from flows.run.artifacts import artifact_errors_logged
from flows.run.flow_run import name_of_current
from flows.run.request import QuestionOptions, SurveyRequest
from flows.run.result import completed_state
from flows.run.run_flow import run_flow
from flows.run.spec import make_spec, native_warning
from infra.settings import load_settings
from reelabel.sources.object_store import ObjectStore
from reelabel.text import escape_controls
from tasks.model.backend import backend_of
from tasks.report.pages import page_link, page_uri
from tasks.survey.describe import amount, headlines, title
from tasks.survey.page import render
from tasks.survey.take import SurveyOptions, take_survey

if TYPE_CHECKING:
    from prefect import State

    from infra.settings import Settings
    from tasks.survey.survey import Survey


class SurveyForm(SurveyRequest):
    """Parameters of the flow, which surveys a sample by default: unlike the command, it shows no progress."""

    sample: int | None = Field(2000, ge=2)
    """Number of random clips to survey; if empty, all."""


@run_flow(SurveyForm, name=lambda: name_of_current("survey"))
def survey(request: SurveyForm) -> State[str]:
    """Read only the indexes of a manifest's videos, and say what a run would show and cost."""
    settings, overrides = load_settings(), QuestionOptions(model=request.model, sampling=request.sampling)
    model_info = backend_of(settings).model_info(overrides.model, settings)
    if warning := native_warning(model_info, settings, overrides):
        get_run_logger().warning("%s.", warning)
    sampling = make_spec(model_info, settings, overrides).sampling
    options = SurveyOptions(sample=request.sample, limit_s=request.limit_s, keep_going=request.keep_going)
    found = take_survey(request.manifest, settings, sampling, options)
    _publish(found, settings)
    return completed_state(" ".join([f"{title(found)}.", *headlines(found)]))


def _publish(found: Survey, settings: Settings) -> None:
    table = [{"": name, "a run": escape_controls(text)} for name, text in amount(found)]
    with artifact_errors_logged():
        create_table_artifact(key="reelabel-survey", table=table, description="What a run would cost")
    store_uri = settings.store.uri
    if store_uri is None or flow_run.id is None:
        return
    uri = page_uri(store_uri, flow_run.id)
    ObjectStore(settings.store, settings.web).replace(uri, render(found).encode())
    get_run_logger().info("Page written to %s", uri)
    if settings.report.base_url:
        link = page_link(settings.report.base_url, flow_run.id)
        with artifact_errors_logged():
            create_link_artifact(key="reelabel-survey-page", link=link, link_text=link, description="The survey")
