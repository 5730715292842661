"""`reelabel audit`."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.console import print_json, print_line, require_parent_folder
from flows.cli.context import find_run, open_database
from flows.cli.options import Raw, Run, example
from infra.errors import ManifestMissingError
from reelabel.errors import ConfigurationError
from reelabel.sources.object_info import absolute_uri
from reelabel.sources.object_store import ObjectStore
from tasks.database.scope import Scope
from tasks.manifest.table import open_audited
from tasks.results.audit import audit_jobs, check_listing
from tasks.results.runs import describes, is_partial_run

if TYPE_CHECKING:
    from collections.abc import Iterator


@example("reelabel audit last --json")
def audit(
    run: Run = "last",
    *,
    json: Annotated[bool, typer.Option("--json", help="Print the counts as JSON.")] = False,
    listing: Annotated[
        str | None,
        typer.Option("--list", help="Write the ids of jobs without a label to this .parquet, .csv or .txt file."),
    ] = None,
    raw: Raw = False,
    manifest: Annotated[str | None, typer.Option(help="Where the run's manifest is now, if it was moved.")] = None,
) -> None:
    """Check that every job of a run's manifest has exactly one outcome.

    Exits with 1 if not.
    """
    if raw and not (listing and listing.endswith(".csv")):
        raise ConfigurationError("--raw is for --list with a .csv file; the other formats never change texts.")
    if listing:
        check_listing(Path(listing))
        require_parent_folder(listing)
    with open_database(store=True) as (settings, engine):
        row = find_run(engine, run)
        objects, keep_going = ObjectStore(settings.store, settings.web), bool(row["jobs_rejected"])
        scope = Scope.of(row)
        questions = not describes(engine, scope.spec_id)
        uri = absolute_uri(manifest) if manifest else row["manifest_uri"]
        with _hint_if_moved(manifest), open_audited(uri, objects, keep_going=keep_going, questions=questions) as read:
            target = Path(listing) if listing else None
            report = audit_jobs(engine, scope, jobs=read(), listing=target, raw=raw)
        is_whole = not is_partial_run(engine, row)
    requested = row["jobs_labelled"] + row["jobs_failed"]
    if not is_whole and report.labels + report.failures >= requested:
        report = report.without_missing
    if json:
        print_json(asdict(report) | {"is_reconciled": report.is_reconciled})
    else:
        print_line(str(report) if is_whole else f"Selected jobs only: {report}")
        for code, count in report.codes.items():
            print_line(f"  {count:,} failed with {code}")
        if not report.is_reconciled and row["state"] != "running" and row["message"]:
            print_line(f"The run is {row['state']}: {row['message']}")
    raise typer.Exit(0 if report.is_reconciled else 1)


@contextmanager
def _hint_if_moved(manifest: str | None) -> Iterator[None]:
    """If a run's manifest is missing, suggest `--manifest`, unless it was given."""
    try:
        yield
    except ManifestMissingError as error:
        if manifest:
            raise
        raise ManifestMissingError(f"{error.message} If it was moved, pass its new location as --manifest.") from None
