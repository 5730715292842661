"""`reelabel deploy`, `reelabel catch-up` and `reelabel maintain`."""

from __future__ import annotations

import asyncio
import os
import shlex
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import ValidationError

from flows.cli.console import OUT, cell, make_table, print_line
from flows.cli.context import prefect_ready, running_services
from flows.cli.options import example
from infra.database.connect import Login, connected
from infra.embedded import ServiceName, missing_services
from infra.program import command
from infra.settings import CONFIG_VARIABLE, NightlySettings, load_settings, secret_variables
from infra.validation import first_fault
from reelabel.errors import ConfigurationError, ReelabelError
from reelabel.sources.object_store import ObjectStore
from reelabel.text import on_one_line
from tasks.database.schema import prepare_database
from tasks.manifest.location import is_one_file
from tasks.manifest.table import open_jobs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flows.schedule.catch_up import Night
    from infra.settings import Settings

_FIRST_YEAR = 1970
# The sections of the settings that a deploy reads.
_READ = ("nightly", "watch", "describe", "notify", "prefect", "retention", "run")


app = typer.Typer()


@app.command()
@example("reelabel deploy --manifest 's3://bucket/jobs/dt={scheduled_date}/*.parquet' --timezone Europe/Berlin")
def deploy(
    *,
    manifest: Annotated[
        str | None, typer.Option(help="Manifest of classify/nightly. Default: nightly.manifest, or as deployed.")
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            help="Dataset of classify/nightly. Default: nightly.dataset, or as deployed, or for a manifest with dates "
            "one for each: jobs-{scheduled_date} for s3://bucket/jobs/dt={scheduled_date}/*.parquet."
        ),
    ] = None,
    cron: Annotated[
        str | None, typer.Option(help="Schedule of classify/nightly. Default: nightly.cron, or as deployed.")
    ] = None,
    timezone: Annotated[
        str | None, typer.Option(help="Time zone of the schedule. Default: nightly.timezone, or as deployed.")
    ] = None,
    when_running: Annotated[
        str | None,
        typer.Option(
            help="If the previous run is still running: queue or skip. Default: nightly.when_running, or as deployed."
        ),
    ] = None,
    may_be_empty: Annotated[
        bool | None,
        typer.Option(
            "--may-be-empty/--no-may-be-empty",
            help="Complete runs without a manifest, and deploy even if it does not exist yet. "
            "Default: nightly.may_be_empty, or as deployed.",
        ),
    ] = None,
    unpause: Annotated[
        bool,
        typer.Option(
            "--unpause", help="Also undo pauses, and turn on schedules that were turned off or removed in Prefect."
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would change; change nothing.")] = False,
) -> None:
    """Create or update the Prefect deployments.

    For each, print what changes and when it runs next. What neither an option nor a setting names stays as deployed,
    as do pauses and schedules set in Prefect.
    """
    asked = {
        "manifest": manifest,
        "dataset": dataset,
        "cron": cron,
        "timezone": timezone,
        "when_running": when_running,
        "may_be_empty": may_be_empty,
    }
    named = {name: value for name, value in asked.items() if value is not None}
    _deploy(named, unpause=unpause, dry_run=dry_run)


def _deploy(nightly: dict[str, Any], *, unpause: bool, dry_run: bool) -> None:
    """Deploy, with fields that override those of the section `nightly`; `unpause` replaces what was set in Prefect."""
    inline = _settings_inline()
    given = load_settings()
    own_worker = ServiceName.PREFECT in missing_services(given, frozenset({ServiceName.PREFECT}))
    manifest = with_nightly(given, nightly).nightly.manifest
    looked_up = (ServiceName.S3,) if manifest and is_one_file(manifest) and manifest.startswith("s3:") else ()
    with running_services(ServiceName.PREFECT, *looked_up) as started, prefect_ready(started):
        from flows.schedule.deploy import deploy_flows, unnamed_models  # noqa: PLC0415 - see prefect_ready

        settings = with_nightly(started, nightly)
        plans = deploy_flows(settings, unpause=unpause, dry_run=dry_run, own_worker=own_worker)
        for line in (line for plan in plans for line in plan.lines()):
            print_line(line)
        for name, error in unnamed_models(plans, settings).items():
            print_line(f"{name} will fail each time unless its worker names a model: {error.message}")
        automations = _planned_automations(settings) if dry_run else []
        for line in automations:
            print_line(line)
    if dry_run and not automations and all(plan.state == "unchanged" for plan in plans):
        print_line("A deploy would change nothing.")
    elif dry_run:
        print_line(
            f"Nothing was changed. To apply this: {' '.join([*inline, _deploy_command(nightly, unpause=unpause)])}"
        )


def _settings_inline() -> list[str]:
    """Return settings of the environment as a shell assigns them before a command, without secrets.

    They are those that a deploy reads, and those that locate the settings and the embedded services.
    """
    starts = (CONFIG_VARIABLE, "REELABEL_HOME", *(f"REELABEL_{section}_".upper() for section in _READ))
    own = {name: value for name, value in os.environ.items() if name.startswith(starts)}
    return [f"{name}={shlex.quote(value)}" for name, value in sorted(own.items()) if name not in secret_variables()]


def _planned_automations(settings: Settings) -> list[str]:
    from prefect.client.orchestration import get_client  # noqa: PLC0415 - see prefect_ready

    from flows.schedule.automations import planned_changes  # noqa: PLC0415

    with get_client(sync_client=True) as client:
        return planned_changes(client, settings)


def _deploy_command(nightly: dict[str, Any], *, unpause: bool) -> str:
    words: list[str] = []
    for name, value in nightly.items():
        option = name.replace("_", "-")
        words += [f"--{option if value else f'no-{option}'}"] if isinstance(value, bool) else [f"--{option}", value]
    return command("deploy", *words, unpause=unpause)


def with_nightly(settings: Settings, nightly: dict[str, Any]) -> Settings:
    """Override fields of the section `nightly`."""
    try:
        section = NightlySettings.model_validate(settings.nightly.model_dump(exclude_unset=True) | nightly)
    except ValidationError as error:
        where, value, clause = first_fault(error)
        raise ConfigurationError(f"--{where.replace('_', '-')} {value}: {clause}.") from None
    return settings.model_copy(update={"nightly": section})


@app.command("catch-up")
@example("reelabel catch-up --since 2026-11-01 --dry-run")
def catch_up(
    *,
    since: Annotated[str, typer.Option(help="First day, in the schedule's time zone, such as 2026-11-01.")],
    until: Annotated[str | None, typer.Option(help="Last day. Default: today.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the scheduled runs; start none. Exit 1 if one is certain to fail.")
    ] = False,
) -> None:
    """Run missed scheduled runs of classify/nightly, oldest first.

    Exits with 1 if one fails.
    """
    raise typer.Exit(_catch_up(since=since, until=until, dry_run=dry_run))


def _catch_up(*, since: str, until: str | None, dry_run: bool) -> int:
    first, last = _day("--since", since), _day("--until", until) if until else None
    with running_services(*ServiceName) as settings, prefect_ready(settings):
        from prefect.client.orchestration import get_client  # noqa: PLC0415 - see prefect_ready

        from flows.schedule.catch_up import find_nights  # noqa: PLC0415

        prepare_database(settings.database)
        with get_client(sync_client=True) as client, connected(settings.database, Login.READER) as engine:
            objects = ObjectStore(settings.store, settings.web)
            nights = find_nights(client, engine, objects, since=first, until=last)
            _print_scheduled(nights)
            missed = [night for night in nights if night.state == "missed"]
            if dry_run:
                failing = [_is_bound_to_fail(night, objects) for night in missed]
                if missed:
                    print_line(f"To start the missed ones: {command('catch-up', since=since, until=until)}")
                return 1 if any(failing) else 0
            outcomes = [_run(client, night) for night in missed]
            return 0 if all(outcomes) else 1


def _is_bound_to_fail(night: Night, objects: ObjectStore) -> bool:
    """Print why a scheduled run is certain to fail, by its manifest, and return whether it is; failed jobs are none."""
    try:
        with open_jobs(night.manifest, objects, keep_going=night.keep_going):
            return False
    except ReelabelError as error:
        print_line(
            f"{night.at:%Y-%m-%d %H:%M} will fail, so the command ends with exit code 1: {on_one_line(error.message)}"
        )
        return True


def _run(client: Any, night: Night) -> bool:  # noqa: ANN401 - Prefect's, imported late
    """Have a worker do one scheduled run, and wait for it; return whether it succeeded."""
    from prefect.flow_runs import wait_for_flow_run  # noqa: PLC0415

    from flows.schedule.catch_up import start_night  # noqa: PLC0415

    flow_run = start_night(client, night)
    with OUT.status(cell(f"{night.at:%Y-%m-%d %H:%M}: {night.manifest}")):
        ended: Any = asyncio.run(wait_for_flow_run(flow_run.id, timeout=None))
    print_line(f"{night.at:%Y-%m-%d %H:%M} {ended.state.name}: {on_one_line(ended.state.message or '')}")
    return bool(ended.state.is_completed())


def _print_scheduled(nights: Sequence[Night]) -> None:
    rows = ((f"{night.at:%Y-%m-%d %H:%M %Z}", night.state, night.manifest) for night in nights)
    OUT.print(make_table(("scheduled", "state", "manifest"), rows))


def _day(option: str, text: str) -> date:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        day = date.min
    if not _FIRST_YEAR <= day.year < date.max.year:  # in another time zone, the first and last of all days do not exist
        raise ConfigurationError(f"{option} {text} is not a date since {_FIRST_YEAR}; write it as 2026-11-01.")
    return day


@app.command()
@example("reelabel maintain --dry-run")
def maintain(
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Report what would be removed; remove nothing.")] = False,
) -> None:
    """Apply the retention settings and close the rows of lost runs."""
    with (
        running_services(ServiceName.POSTGRES, ServiceName.S3, ServiceName.PREFECT) as settings,
        prefect_ready(settings),
    ):
        from flows.maintain import apply_retention  # noqa: PLC0415 - see prefect_ready

        for line in apply_retention(settings, dry_run=dry_run):
            print_line(line)
    if dry_run:
        print_line(f"To remove them: {command('maintain')}")
