"""Settings of notifications and retention, the sections `[notify]` and `[retention]`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, SecretStr

from infra.settings.base import SettingsSection
from infra.settings.schedule import Cron  # noqa: TC001 - read at run time


class NotifySettings(SettingsSection):
    """Where to report runs that fail or stall."""

    webhook_url: Annotated[
        SecretStr | None,
        Field(description='Webhook to which {"text": ...} is posted, as for Slack; if empty, nothing is sent.'),
    ] = None
    failure_rate: Annotated[
        float, Field(gt=0, le=1, description="Fraction of failed jobs in a run at which to notify.")
    ] = 0.2
    failure_jobs: Annotated[
        int, Field(ge=1, description="Jobs that must have ended before the failure rate counts.")
    ] = 100
    stall_s: Annotated[
        float, Field(ge=1, le=86_400, description="Seconds without a finished job after which a run counts as stalled.")
    ] = 1800


class RetentionSettings(SettingsSection):
    """What the deployment maintain/daily removes; limits left empty remove nothing."""

    cron: Annotated[Cron, Field(description="Schedule of maintain/daily, in UTC.")] = "30 4 * * *"
    frames_days: Annotated[
        float | None, Field(gt=0, description="Days to keep cached frames; they are extracted again if needed.")
    ] = None
    frames_bytes: Annotated[
        int | None, Field(ge=0, description="Maximum bytes of cached frames; the oldest are removed first.")
    ] = None
    orphaned_frames: Annotated[
        bool, Field(description="Keep cached frames of videos that were deleted or replaced.")
    ] = False
    results_days: Annotated[
        float | None, Field(gt=0, description="Days to keep labels and failures, from when they were written.")
    ] = None
    history_days: Annotated[
        float | None, Field(gt=0, description="Days to keep labels that were replaced, for `reelabel diff`.")
    ] = 90
    specs: Annotated[
        int | None,
        Field(ge=1, description="Number of latest specs per dataset whose labels and failures are kept."),
    ] = None
    plans_days: Annotated[
        float, Field(gt=0, description="Days to keep plans that have ended, or that no worker works on.")
    ] = 7
    reports_days: Annotated[
        float | None,
        Field(gt=0, description="Days to keep reports, on the store and in home; `reelabel report` recreates them."),
    ] = 365
    live_days: Annotated[
        float | None,
        Field(
            gt=0, description="Days to keep live sessions, with their frames and queries, after they were last seen."
        ),
    ] = None
    flow_runs_days: Annotated[
        float | None, Field(gt=0, description="Days to keep ended flow runs in Prefect's history.")
    ] = 90
