"""`reelabel results` and `reelabel audit`."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
from rich.table import Table
from rich.text import Text

from flows.commands.opened import opened
from flows.commands.target import require_folder
from flows.commands.terminal import OUT, say
from flows.cost import cost_lines
from infra.embedded import ServiceName
from infra.errors import ConfigurationError
from infra.objects import ObjectStore
from infra.wording import counted
from tasks.calibration.temperature import calibrated
from tasks.manifest.parquet import open_manifest
from tasks.manifest.table import asked_batches
from tasks.results.audit import audit_jobs
from tasks.results.calibrations import read_calibration
from tasks.results.listing import check_listing
from tasks.results.read import count_endings, read_failures, read_results
from tasks.results.runs import find_run, is_of_chosen_jobs

if TYPE_CHECKING:
    from sqlalchemy import Engine, RowMapping

_SHOWN_ROWS = 20
_SHOWN_COLUMNS = ("job_id", "label", "margin", "confidence", "answer")


def print_results(run: str, *, form: str, with_calibrated: bool) -> None:
    """Print what stands for a run's dataset and spec, in a form of the user's choice.

    Raises:
        ConfigurationError: No such run, no such form, or no calibration of the spec.
    """
    if form not in {"table", "json", "csv", "parquet"}:
        raise ConfigurationError(f"--format {form} is unknown; use table, json, csv or parquet.")
    with opened(ServiceName.POSTGRES) as (_, engine):
        row = find_run(engine, run)
        key = {"dataset": row["dataset"], "spec_id": row["spec_id"]}
        most = _SHOWN_ROWS if form == "table" else None
        labels, failures = read_results(engine, **key, most=most), read_failures(engine, **key, most=most)
        counts = count_endings(engine, **key)
        if with_calibrated:
            labels = _add_calibrated(labels, _temperature(engine, row["spec_id"]))
    if form == "table":
        _print_table(row, labels, failures, counts=counts)
        for name, value in cost_lines(row):
            say(f"{name}: {value}")
        if row["state"] not in {"done", "running"} and row["message"]:
            say(f"This run {row['state']}: {row['message']}")
        return
    both = pl.concat([labels, failures], how="diagonal_relaxed").sort("job_id")
    if form == "json":
        _write(both.write_json().encode())
    elif form == "csv":
        lists = both.with_columns(pl.col(pl.List(pl.Float64)).cast(pl.List(pl.String)).list.join(" "))
        _write(lists.write_csv().encode())
    else:
        both.write_parquet(sys.stdout.buffer)


def print_audit(run: str, *, as_json: bool, listing: str | None) -> int:
    """Prove that every job of a run's manifest ended exactly once; gives the exit code.

    Raises:
        ConfigurationError: No such run, or the list cannot be written as it is named.
    """
    if listing:
        check_listing(Path(listing))
        require_folder(listing)
    with opened(ServiceName.POSTGRES, ServiceName.S3) as (settings, engine):
        row = find_run(engine, run)
        with open_manifest(row["manifest_uri"], ObjectStore(settings.store, settings.web)) as files:
            key = {"dataset": row["dataset"], "spec_id": row["spec_id"]}
            report = audit_jobs(engine, **key, jobs=asked_batches(files), listing=Path(listing) if listing else None)
        is_whole = not is_of_chosen_jobs(engine, row)
    asked = row["jobs_labelled"] + row["jobs_failed"]
    if not is_whole and report.labels + report.failures >= asked:
        report = report.of_ended
    if as_json:
        _write(json.dumps(asdict(report) | {"is_reconciled": report.is_reconciled}, indent=2).encode())
    else:
        say(str(report) if is_whole else f"Of the jobs that were chosen for it: {report}")
        for code, count in report.codes.items():
            say(f"  {count:,} failed with {code}")
        if not report.is_reconciled and row["state"] != "running" and row["message"]:
            say(f"The run {row['state']}: {row['message']}")
    return 0 if report.is_reconciled else 1


def _temperature(engine: Engine, spec_id: str) -> float:
    found = read_calibration(engine, spec_id)
    if found is None:
        raise ConfigurationError(
            f"Spec {spec_id} has no calibration; `reelabel calibrate MANIFEST` makes one from known answers.",
        )
    return float(found["temperature"])


def _add_calibrated(labels: pl.DataFrame, temperature: float) -> pl.DataFrame:
    """Add what a temperature makes of the probabilities, and of the label's own."""
    rows = calibrated(labels["probabilities"].to_list(), temperature)
    column = pl.Series("calibrated_probabilities", rows, dtype=pl.List(pl.Float64))
    return labels.with_columns(column, confidence=column.list.get(labels["choice_index"]))


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data.rstrip(b"\n") + b"\n")


def _print_table(run: RowMapping, labels: pl.DataFrame, failures: pl.DataFrame, *, counts: tuple[int, int]) -> None:
    title = f"{run['dataset']}: {counted(counts[0], 'label')}, {counted(counts[1], 'failure')}"
    table = Table(title=Text(title))
    shown = [name for name in _SHOWN_COLUMNS if name in labels.columns]
    for name in shown:
        table.add_column(name, overflow="fold")
    for row in labels.iter_rows(named=True):
        table.add_row(*[Text(_cell(row[name])) for name in shown])
    OUT.print(table)
    if counts[0] > len(labels):
        say(f"... and {counts[0] - len(labels):,} more; --format csv prints all, with every column.")
    for row in failures.iter_rows(named=True):
        say((row["code"], "red"), f" {row['job_id']}: {row['message']}")


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.3f}" if isinstance(value, float) else str(value)
