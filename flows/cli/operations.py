"""The commands that keep an installation running: deploy and maintain."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.cli.options import example

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
            help="If the previous night is still running: queue or skip. Default: nightly.when_running, or as deployed."
        ),
    ] = None,
    may_be_empty: Annotated[
        bool | None,
        typer.Option(
            "--may-be-empty/--no-may-be-empty",
            help="Complete nights without a manifest, and deploy even if it does not exist yet. "
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
    from flows.cli.schedule import deploy_all  # noqa: PLC0415

    asked = {
        "manifest": manifest,
        "dataset": dataset,
        "cron": cron,
        "timezone": timezone,
        "when_running": when_running,
        "may_be_empty": may_be_empty,
    }
    named = {name: value for name, value in asked.items() if value is not None}
    deploy_all(named, unpause=unpause, dry_run=dry_run)


@app.command()
@example("reelabel maintain --dry-run")
def maintain(
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Report what would be removed; remove nothing.")] = False,
) -> None:
    """Apply the retention settings and close the rows of lost runs."""
    from flows.cli.schedule import maintain as run  # noqa: PLC0415

    run(dry_run=dry_run)
