"""Settings of what starts by itself, the sections `[nightly]` and `[watch]`."""

from __future__ import annotations

from typing import Annotated, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, Field

from infra.section import Section

_CRON_FIELDS = {5, 6}


def _known_timezone(timezone: str) -> str:
    try:
        ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"there is no time zone {timezone!r}; write one such as Europe/Berlin") from None
    return timezone


def _with_fields(cron: str) -> str:
    if len(cron.split()) not in _CRON_FIELDS:
        raise ValueError(f"{cron!r} is no schedule; write minute, hour, day, month and weekday, as in '0 2 * * *'")
    return cron


Timezone = Annotated[str, Field(min_length=1), AfterValidator(_known_timezone)]
Cron = Annotated[str, AfterValidator(_with_fields)]


class NightlySettings(Section):
    """The scheduled deployment."""

    manifest: Annotated[
        str | None,
        Field(
            description="Manifest of classify/nightly, such as s3://bucket/jobs/dt={scheduled_date}/*.parquet; "
            "empty leaves it paused."
        ),
    ] = None
    dataset: Annotated[
        str | None,
        Field(
            max_length=200, description="Dataset of its jobs; {scheduled_date} may stand in it. Empty is the file name."
        ),
    ] = None
    cron: Annotated[Cron, Field(description="When classify/nightly runs.")] = "0 2 * * *"
    timezone: Annotated[Timezone, Field(description="Time zone of the schedule, and of {scheduled_date}.")] = "UTC"
    when_running: Annotated[
        Literal["queue", "skip"],
        Field(description="What a night does while the one before still runs: queue behind it, or skip."),
    ] = "queue"
    may_be_empty: Annotated[
        bool, Field(description="A night without a manifest ends well, and says so; false has it fail.")
    ] = True


class WatchSettings(Section):
    """The deployment that starts a run for each new manifest."""

    manifests: Annotated[
        str | None,
        Field(description="Glob of the manifests to watch for, such as s3://bucket/in/*.parquet; empty leaves it off."),
    ] = None
    dataset: Annotated[
        str | None, Field(max_length=200, description="Dataset of their jobs; empty is each manifest's file name.")
    ] = None
    cron: Annotated[Cron, Field(description="When it looks.")] = "* * * * *"
