"""Looking up deployments and dates of schedules in Prefect."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from prefect.exceptions import ObjectNotFound
from prefect.server.schemas.schedules import SCHEDULE_TYPES
from pydantic import TypeAdapter

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.responses import DeploymentResponse

_CALENDAR: TypeAdapter[Any] = TypeAdapter(SCHEDULE_TYPES)


def find_deployment(client: SyncPrefectClient, name: str) -> DeploymentResponse | None:
    """Return a deployment; None if there is none of this name."""
    try:
        return client.read_deployment_by_name(name)
    except ObjectNotFound:
        return None


def dates_of(schedule: Any, start: datetime, **limits: Any) -> list[datetime]:  # noqa: ANN401 - any of Prefect's
    """Return dates of a schedule in its time zone, from `start`, within `limits`: `n` dates, or until `end`."""
    calendar = _CALENDAR.validate_python(schedule.model_dump())
    try:
        dates = asyncio.run(calendar.get_dates(start=start, **limits))
    except ValueError:  # croniter's, of a schedule without a date, such as February 30
        return []
    return [datetime.fromtimestamp(at.timestamp(), ZoneInfo(schedule.timezone or "UTC")) for at in dates]


def next_date(schedule: Any) -> datetime | None:  # noqa: ANN401 - any of Prefect's schedules
    """Return the first date of a schedule after now, in its time zone; None if there is none."""
    return next(iter(dates_of(schedule, datetime.now(UTC), n=1)), None)
