"""`reelabel deploy`, `reelabel catch-up` and `reelabel maintain`."""

from __future__ import annotations

import asyncio
import os
import shlex
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.console import OUT, cell, make_table, print_line
from flows.cli.context import OF_A_RUN, running_with_prefect
from flows.cli.options import example, with_options
from infra.database.connect import Role, connected
from infra.embedded import ServiceName, missing_services
from infra.program import command, command_with_settings
from infra.settings import CONFIG_VARIABLE, NightlySettings, load_settings, secret_variables
from reelabel.errors import ConfigurationError, ReelabelError
from reelabel.sources.object_store import ObjectStore
from reelabel.text import on_one_line
from tasks.database.schema import prepare_database
from tasks.manifest.location import is_one_file
from tasks.manifest.table import open_jobs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flows.schedule.catch_up import ScheduledRun
    from infra.settings import Settings

_FIRST_YEAR = 1970
# The sections of the settings that a deploy reads.
_SECTIONS = ("nightly", "watch", "describe", "notify", "prefect", "retention", "run")
_HINTS = {
    "manifest": "Manifest of classify/nightly. Default: nightly.manifest, or as deployed.",
    "dataset": "Dataset of classify/nightly. Default: nightly.dataset, or as deployed, or one per date for a manifest "
    "with dates: jobs-{scheduled_date} for s3://bucket/jobs/dt={scheduled_date}/*.parquet.",
    "cron": "Schedule of classify/nightly. Default: nightly.cron, or as deployed.",
    "timezone": "Time zone of the schedule. Default: nightly.timezone, or as deployed.",
    "when_running": "If the previous run is still running: queue or skip. Default: nightly.when_running, or as "
    "deployed.",
    "may_be_empty": "Complete runs without a manifest, and deploy even if it does not exist yet. Default: "
    "nightly.may_be_empty, or as deployed.",
}


@example("reelabel deploy --manifest 's3://bucket/jobs/dt={scheduled_date}/*.parquet' --timezone Europe/Berlin")
@with_options("nightly", NightlySettings, _HINTS)
def deploy(
    *,
    nightly: NightlySettings,
    unpause: Annotated[
        bool,
        typer.Option(
            "--unpause", help="Also undo pauses, and turn on schedules that were turned off or removed in Prefect."
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would change; change nothing.")] = False,
) -> None:
    """Create or update the Prefect deployments.

    For each, prints what changes and when it runs next. Anything that neither an option nor a setting specifies stays
    as deployed, as do pauses and schedules set in Prefect.
    """
    assignments, configured = _settings_inline(), load_settings()
    own_worker = ServiceName.PREFECT in missing_services(configured, frozenset({ServiceName.PREFECT}))
    manifests = (with_nightly(configured, nightly).nightly.manifest, configured.describe.nightly_manifest)
    on_store = any(each and is_one_file(each) and each.startswith("s3:") for each in manifests)
    looked_up = [ServiceName.S3] * on_store
    with running_with_prefect(ServiceName.PREFECT, *looked_up) as started:
        from prefect.client.orchestration import get_client  # noqa: PLC0415 - see prefect_ready

        from flows.schedule.automations import planned_changes  # noqa: PLC0415
        from flows.schedule.deploy import deploy_flows, unnamed_models  # noqa: PLC0415

        settings = with_nightly(started, nightly)
        plans = deploy_flows(settings, unpause=unpause, dry_run=dry_run, own_worker=own_worker)
        for line in (line for plan in plans for line in plan.lines()):
            print_line(line)
        for name, error in unnamed_models(plans, settings).items():
            print_line(f"{name} will fail each time unless its worker sets a model: {error.message}")
        if not dry_run:
            return
        with get_client(sync_client=True) as client:
            automations = planned_changes(client, settings)
        for line in automations:
            print_line(line)
    if not automations and all(plan.state == "unchanged" for plan in plans):
        print_line("Nothing to change.")
    else:
        again = command("deploy", nightly=nightly, unpause=unpause)
        print_line(f"Nothing was changed. To apply this: {' '.join([*assignments, again])}")


def with_nightly(settings: Settings, nightly: NightlySettings) -> Settings:
    fields = settings.nightly.model_dump(exclude_unset=True) | nightly.model_dump(exclude_unset=True)
    return settings.model_copy(update={"nightly": NightlySettings(**fields)})


def _settings_inline() -> list[str]:
    """Return settings of the environment and of --set as shell assignments, without secrets.

    They are those that a deploy reads, and those that locate the settings and the embedded services.
    """
    starts = (CONFIG_VARIABLE, "REELABEL_HOME", *(f"REELABEL_{section}_".upper() for section in _SECTIONS))
    own = {name: value for name, value in os.environ.items() if name.startswith(starts)}
    return [f"{name}={shlex.quote(value)}" for name, value in sorted(own.items()) if name not in secret_variables()]


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
    first, last = _day("--since", since), _day("--until", until) if until else None
    if last and last < first:
        raise ConfigurationError(f"--until {until} is before --since {since}; swap them.")
    with running_with_prefect(*ServiceName) as settings:
        from prefect.client.orchestration import get_client  # noqa: PLC0415 - see prefect_ready

        from flows.schedule.catch_up import find_scheduled_runs  # noqa: PLC0415

        prepare_database(settings.database)
        with get_client(sync_client=True) as client, connected(settings.database, Role.READER) as engine:
            objects = ObjectStore(settings.store, settings.web)
            scheduled = find_scheduled_runs(client, engine, objects, since=first, until=last)
            _print_scheduled(scheduled)
            missed = [run for run in scheduled if run.state == "missed"]
            if dry_run:
                failing = [_is_bound_to_fail(run, objects) for run in missed]
                if missed:
                    print_line(
                        f"To start the missed ones: {command_with_settings('catch-up', since=since, until=until)}"
                    )
                raise typer.Exit(1 if any(failing) else 0)
            outcomes = [_run(client, run) for run in missed]
    raise typer.Exit(0 if all(outcomes) else 1)


def _is_bound_to_fail(run: ScheduledRun, objects: ObjectStore) -> bool:
    """Return whether a scheduled run is certain to fail because of its manifest, and print why."""
    try:
        with open_jobs(run.manifest, objects, keep_going=run.keep_going):
            return False
    except ReelabelError as error:
        print_line(
            f"{run.at:%Y-%m-%d %H:%M} will fail, so the command ends with exit code 1: {on_one_line(error.message)}"
        )
        return True


def _run(client: Any, run: ScheduledRun) -> bool:  # noqa: ANN401 - Prefect's, imported late
    """Run one scheduled run on a worker, and wait for it; return whether it succeeded."""
    from prefect.flow_runs import wait_for_flow_run  # noqa: PLC0415

    from flows.schedule.catch_up import start_scheduled_run  # noqa: PLC0415

    flow_run = start_scheduled_run(client, run)
    with OUT.status(cell(f"{run.at:%Y-%m-%d %H:%M}: {run.manifest}")):
        ended: Any = asyncio.run(wait_for_flow_run(flow_run.id, timeout=None))
    print_line(f"{run.at:%Y-%m-%d %H:%M} {ended.state.name}: {on_one_line(ended.state.message or '')}")
    return bool(ended.state.is_completed())


def _print_scheduled(scheduled: Sequence[ScheduledRun]) -> None:
    rows = ((f"{run.at:%Y-%m-%d %H:%M %Z}", run.state, run.manifest) for run in scheduled)
    OUT.print(make_table(("scheduled", "state", "manifest"), rows))


def _day(option: str, text: str) -> date:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        day = date.min
    if not _FIRST_YEAR <= day.year < date.max.year:  # the first and last days overflow in other time zones
        raise ConfigurationError(f"{option} {text} is not a date since {_FIRST_YEAR}; write it as 2026-11-01.")
    return day


@example("reelabel maintain --dry-run")
def maintain(
    *, dry_run: Annotated[bool, typer.Option("--dry-run", help="Report what would be removed; remove nothing.")] = False
) -> None:
    """Apply the retention settings and close the rows of lost runs."""
    with running_with_prefect(*OF_A_RUN) as settings:
        from flows.maintain import apply_retention  # noqa: PLC0415 - see prefect_ready

        for line in apply_retention(settings, dry_run=dry_run):
            print_line(line)
    if dry_run:
        print_line(f"To remove them: {command_with_settings('maintain')}")
