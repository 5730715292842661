"""Settings of who is told and what is kept, the sections `[notify]` and `[keep]`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, SecretStr

from infra.schedule_settings import Cron  # noqa: TC001 - read at run time
from infra.section import Section


class NotifySettings(Section):
    """Who is told when a run goes wrong."""

    webhook_url: Annotated[
        SecretStr | None,
        Field(description='Address that is sent {"text": ...}, as Slack and others take it; empty tells nobody.'),
    ] = None
    failure_rate: Annotated[
        float, Field(gt=0, le=1, description="Share of a run's jobs that fail, from which on it is told.")
    ] = 0.2
    failure_jobs: Annotated[
        int, Field(ge=1, description="Jobs that must have ended before their failures are judged.")
    ] = 100
    stall_s: Annotated[
        float, Field(ge=1, le=86_400, description="Seconds without a job that ends, from which on a run is stalled.")
    ] = 1800


class KeepSettings(Section):
    """How long what piles up is kept, by the deployment maintain/daily; what is empty is kept for ever."""

    cron: Annotated[Cron, Field(description="When maintain/daily runs, in UTC.")] = "30 4 * * *"
    frames_days: Annotated[
        float | None, Field(gt=0, description="Days after which cached frames go; made anew where they are needed.")
    ] = None
    frames_bytes: Annotated[
        int | None, Field(ge=0, description="Most bytes of cached frames; the oldest go first.")
    ] = None
    orphaned_frames: Annotated[
        bool, Field(description="Keep cached frames of videos that are gone or have changed.")
    ] = False
    results_days: Annotated[
        float | None, Field(gt=0, description="Days after which labels and failures go, counted from their writing.")
    ] = None
    specs: Annotated[
        int | None,
        Field(ge=1, description="Latest specs of a dataset whose labels and failures stay; those of others go."),
    ] = None
    plans_days: Annotated[
        float, Field(gt=0, description="Days after which ended plans go, and open ones that nobody works on.")
    ] = 7
    reports_days: Annotated[
        float | None,
        Field(gt=0, description="Days after which pages of runs go, on the store and at home; made anew when asked."),
    ] = 365
    flow_runs_days: Annotated[
        float | None, Field(gt=0, description="Days after which ended flow runs leave Prefect's history.")
    ] = 90
