"""Settings of scheduled runs, the sections `[nightly]` and `[watch]`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from pydantic import AfterValidator, Field

from infra.settings.base import SettingsSection

if TYPE_CHECKING:
    from pydantic import GetJsonSchemaHandler
    from pydantic_core import CoreSchema

_CRON_FIELDS = {5, 6}


def _known_timezone(timezone: str) -> str:
    try:
        ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"{timezone!r} is not a time zone; use a name such as Europe/Berlin") from None
    return timezone


def _with_fields(cron: str) -> str:
    if len(cron.split()) not in _CRON_FIELDS:
        raise ValueError(
            f"{cron!r} is not a cron schedule; write minute, hour, day, month and weekday, as in '0 2 * * *'"
        )
    return cron


class _Names:
    """Offers the names of time zones in forms, whose server refuses others."""

    @staticmethod
    def __get_pydantic_json_schema__(_schema: CoreSchema, _handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"type": "string", "enum": sorted(available_timezones())}


Timezone = Annotated[str, Field(min_length=1), AfterValidator(_known_timezone), _Names]
Cron = Annotated[str, AfterValidator(_with_fields)]
# What a manifest that arrives starts: the flow whose deployment `on-demand` is run.
Started = Literal["classify", "describe"]


class NightlySettings(SettingsSection):
    """The nightly run, deployment classify/nightly."""

    manifest: Annotated[
        str | None,
        Field(
            description="Manifest of classify/nightly, such as s3://bucket/jobs/dt={scheduled_date}/*.parquet; "
            "if empty, the deployment is paused."
        ),
    ] = None
    dataset: Annotated[
        str | None,
        Field(
            max_length=200,
            description="Dataset, which may contain {scheduled_date}; defaults to one for each date, such as "
            "jobs-{scheduled_date}, or without dates to the manifest's file name.",
        ),
    ] = None
    cron: Annotated[Cron, Field(description="Schedule of classify/nightly.")] = "0 2 * * *"
    timezone: Annotated[Timezone, Field(description="Time zone of the schedule, and of {scheduled_date}.")] = "UTC"
    when_running: Annotated[
        Literal["queue", "skip"],
        Field(description="What to do if the previous run is still running: wait for it, or skip this one."),
    ] = "queue"
    may_be_empty: Annotated[
        bool,
        Field(description="Whether a run without a manifest completes, with a note; if false, it fails."),
    ] = True


class WatchSettings(SettingsSection):
    """The deployment that starts a run for each new manifest."""

    manifests: Annotated[
        str | None,
        Field(description="Glob of manifests to watch for, such as s3://bucket/in/*.parquet; if empty, none."),
    ] = None
    dataset: Annotated[
        str | None, Field(max_length=200, description="Dataset of their jobs; defaults to each manifest's file name.")
    ] = None
    starts: Annotated[
        Started, Field(description="What is started for each manifest: classify, or describe for descriptions.")
    ] = "classify"
    cron: Annotated[Cron, Field(description="When to look for new manifests.")] = "* * * * *"
