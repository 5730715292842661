"""`reelabel catch-up`."""

from __future__ import annotations

import asyncio
from datetime import date
from typing import TYPE_CHECKING, Any

from rich.table import Table

from flows.commands.opened import connected, running_services
from flows.commands.scheduler import prefect_ready
from flows.commands.terminal import OUT, print_line
from infra.embedded import ServiceName
from infra.errors import ConfigurationError
from infra.objects import ObjectStore
from tasks.results.schema import prepare_database

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flows.catch_up import Night


def catch_up(*, since: str, until: str | None, dry_run: bool) -> int:
    """Run the missed nightly schedules, one after another; return the exit code."""
    first, last = _day("--since", since), _day("--until", until) if until else None
    with running_services(*ServiceName) as settings, prefect_ready(settings):
        from prefect.client.orchestration import get_client  # noqa: PLC0415 - see prefect_ready

        from flows.catch_up import find_nights  # noqa: PLC0415

        prepare_database(settings.database)
        with get_client(sync_client=True) as client, connected(settings) as engine:
            objects = ObjectStore(settings.store, settings.web)
            nights = find_nights(client, engine, objects, since=first, until=last)
            _print_nights(nights)
            missed = [night for night in nights if night.state == "missed"]
            if dry_run:
                return 0
            endings = [_run(client, night) for night in missed]
            return 0 if all(endings) else 1


def _run(client: Any, night: Night) -> bool:  # noqa: ANN401 - Prefect's, imported late
    """Have a worker run one night, and wait for it; return whether it succeeded."""
    from prefect.flow_runs import wait_for_flow_run  # noqa: PLC0415

    from flows.catch_up import start_night  # noqa: PLC0415

    flow_run = start_night(client, night)
    with OUT.status(f"{night.at:%Y-%m-%d %H:%M}: {night.manifest}"):
        ended: Any = asyncio.run(wait_for_flow_run(flow_run.id, timeout=None))
    print_line(f"{night.at:%Y-%m-%d %H:%M} {ended.state.name}: {ended.state.message}")
    return bool(ended.state.is_completed())


def _print_nights(nights: Sequence[Night]) -> None:
    table = Table("scheduled", "state", "manifest")
    for night in nights:
        table.add_row(f"{night.at:%Y-%m-%d %H:%M %Z}", night.state, night.manifest)
    OUT.print(table)


def _day(option: str, text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(f"{option} {text} is not a date; write it as 2026-11-01.") from None
