"""`reelabel results`, `reelabel audit` and `reelabel report`."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
from rich.table import Table

from flows.cli.console import OUT, cell, print_line, require_parent_folder
from flows.cli.context import find_run, open_database
from flows.cli.rows.descriptions import print_descriptions
from flows.cli.rows.formats import check_format, print_rows
from flows.cli.rows.tables import SHOWN_CHUNKS, SHOWN_ROWS, print_chunks, print_outcomes
from infra.embedded import ServiceName
from infra.errors import ManifestMissingError
from reelabel.errors import ConfigurationError
from reelabel.sources.object_info import absolute_uri
from reelabel.sources.object_store import ObjectStore
from reelabel.text import pluralize
from tasks.database.scope import Scope
from tasks.evaluation.calibration import calibrate_probabilities
from tasks.frame_cache.pool import frame_cache
from tasks.manifest.table import open_audited
from tasks.report.pages import page_of_run
from tasks.results.audit import audit_jobs, check_listing
from tasks.results.diff import compare_runs
from tasks.results.evaluation.calibrations import read_calibration
from tasks.results.read import count_outcomes, read_chunks, read_failures, read_outcomes, read_results
from tasks.results.runs import describes, is_partial_run, short_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from uuid import UUID

    from sqlalchemy import Engine, RowMapping

    from tasks.results.diff import RunDiff

_SHOWN_COLUMNS = ("job_id", "label", "margin", "confidence", "answer")


def print_results(run: str, *, form: str, with_calibrated: bool, raw: bool = False, chunks: bool = False) -> None:
    """Print the current labels and failures of a run's dataset and spec, or those of its jobs' chunks."""
    check_format(form, raw=raw)
    with open_database(ServiceName.POSTGRES) as (_, engine):
        row = find_run(engine, run)
        scope = Scope.of(row)
        if describes(engine, scope.spec_id):
            if with_calibrated:
                raise ConfigurationError("--calibrated is for labels; this run has described videos.")
            print_descriptions(engine, row, form=form, raw=raw, chunks=chunks)
            return
        if chunks:
            if with_calibrated:
                raise ConfigurationError(
                    "--calibrated and --chunks exclude each other: a spec is calibrated on the answers of jobs."
                )
            _print_chunks(engine, scope, form=form, raw=raw)
            return
        calibrate = _calibrator(_temperature(engine, scope.spec_id)) if with_calibrated else _unchanged
        if form != "table":
            print_rows(map(calibrate, read_outcomes(engine, scope)), form=form, raw=raw)
            return
        labels = calibrate(read_results(engine, scope, limit=SHOWN_ROWS))
        failures = read_failures(engine, scope, limit=SHOWN_ROWS)
        counts = count_outcomes(engine, scope)
    print_outcomes(row, _table(labels), failures, noun="label", counts=counts)


def _print_chunks(engine: Engine, scope: Scope, *, form: str, raw: bool) -> None:
    if form != "table":
        print_rows(read_chunks(engine, scope), form=form, raw=raw)
        return
    found = pl.concat(read_chunks(engine, scope, limit=SHOWN_CHUNKS + 1))
    if found.is_empty():
        raise ConfigurationError(
            f"No job of {scope.dataset} was cut into chunks in this spec; see --chunk-s of classify."
        )
    table = Table("chunk", "from", "to", "label", "margin")
    for row in found[:SHOWN_CHUNKS].iter_rows(named=True):
        place = f"{row['start_s'] or 0:g} s", "end" if row["end_s"] is None else f"{row['end_s']:g} s"
        table.add_row(*map(cell, (row["chunk_id"], *place, row["label"] or row["code"], _shown(row["margin"]))))
    print_chunks(table, found)


def print_audit(run: str, *, as_json: bool, listing: str | None, raw: bool = False, manifest: str | None = None) -> int:
    """Check that every job of a run's manifest, or of where that is now, ended exactly once; return the exit code."""
    if raw and not (listing and listing.endswith(".csv")):
        raise ConfigurationError("--raw is for --list with a .csv file; the other formats write texts as they are.")
    if listing:
        check_listing(Path(listing))
        require_parent_folder(listing)
    with open_database(ServiceName.POSTGRES, ServiceName.S3) as (settings, engine):
        row = find_run(engine, run)
        objects, keep_going = ObjectStore(settings.store, settings.web), bool(row["jobs_rejected"])
        scope = Scope.of(row)
        asks = not describes(engine, scope.spec_id)
        uri = absolute_uri(manifest) if manifest else row["manifest_uri"]
        with _moves_told(manifest), open_audited(uri, objects, keep_going=keep_going, questions=asks) as read:
            target = Path(listing) if listing else None
            report = audit_jobs(engine, scope, jobs=read(), listing=target, raw=raw)
        is_whole = not is_partial_run(engine, row)
    asked = row["jobs_labelled"] + row["jobs_failed"]
    if not is_whole and report.labels + report.failures >= asked:
        report = report.without_missing
    if as_json:
        print(json.dumps(asdict(report) | {"is_reconciled": report.is_reconciled}, indent=2))  # noqa: T201 - for programs
    else:
        print_line(str(report) if is_whole else f"Selected jobs only: {report}")
        for code, count in report.codes.items():
            print_line(f"  {count:,} failed with {code}")
        if not report.is_reconciled and row["state"] != "running" and row["message"]:
            print_line(f"The run is {row['state']}: {row['message']}")
    return 0 if report.is_reconciled else 1


@contextmanager
def _moves_told(manifest: str | None) -> Iterator[None]:
    """Say what to do if a run's manifest is no longer where it was, unless the user has said where it is."""
    try:
        yield
    except ManifestMissingError as error:
        if manifest:
            raise
        raise ManifestMissingError(f"{error.message} If it was moved, name it with --manifest.") from None


def _temperature(engine: Engine, spec_id: str) -> float:
    found = read_calibration(engine, spec_id)
    if found is None:
        raise ConfigurationError(
            f"Spec {spec_id} is not calibrated; calibrate it on known answers with `reelabel calibrate MANIFEST`.",
        )
    return float(found["temperature"])


def _unchanged(part: pl.DataFrame) -> pl.DataFrame:
    return part


def _calibrator(temperature: float) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """Add calibrated probabilities and the label's confidence; they are null for failures."""

    def add(part: pl.DataFrame) -> pl.DataFrame:
        is_label = part["probabilities"].is_not_null()
        rows = iter(calibrate_probabilities(part["probabilities"].drop_nulls().to_list(), temperature))
        lists = [next(rows) if label else None for label in is_label]
        column = pl.Series("calibrated_probabilities", lists, dtype=pl.List(pl.Float64))
        return part.with_columns(column, confidence=column.list.get(part["choice_index"]))

    return add


def _table(labels: pl.DataFrame) -> Table:
    table = Table()
    shown = [name for name in _SHOWN_COLUMNS if name in labels.columns]
    for name in shown:
        table.add_column(name, overflow="fold")
    for row in labels.iter_rows(named=True):
        table.add_row(*[cell(_shown(row[name])) for name in shown])
    return table


def _shown(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def print_diff(run: str, earlier: str | None, *, as_json: bool) -> None:
    """Print which labels and margins of a run differ from an earlier run's, or from those that it replaced."""
    with open_database(ServiceName.POSTGRES) as (_, engine):
        row = find_run(engine, run)
        before = find_run(engine, earlier) if earlier else None
        if before is not None and before["dataset"] != row["dataset"]:
            raise ConfigurationError(
                f"Run {before['run_id']} is of dataset {before['dataset']}, not {row['dataset']}; "
                "name two runs of one dataset."
            )
        names = short_ids(engine, [each["run_id"] for each in (row, before) if each])
        diff = compare_runs(engine, row["run_id"], earlier=before["run_id"] if before else None)
    if as_json:
        shown = {"tasks": [asdict(task) for task in diff.tasks], "jobs": [asdict(pair) for pair in diff.pairs]}
        print(json.dumps(shown | {"other_questions": diff.other_questions}, indent=2))  # noqa: T201 - for programs
        return
    _print_diff(row, before, diff, names)


def _print_diff(run: RowMapping, before: RowMapping | None, diff: RunDiff, names: Mapping[UUID, str]) -> None:
    than = f"run {names[before['run_id']]}" if before else "the answers that it replaced"
    changed = [pair for pair in diff.pairs if pair.has_changed]
    compared = f"{pluralize(len(diff.pairs), 'job')} compared, {pluralize(len(changed), 'label')} changed"
    print_line(f"Run {names[run['run_id']]} of {run['dataset']} against {than}: {compared}.")
    if diff.other_questions:
        print_line(f"Left out: {pluralize(diff.other_questions, 'job')} with another question than before.")
    for task in diff.tasks:
        margins = f"{pluralize(task.up, 'margin')} up, {task.down:,} down, by {task.margin_change:+.3f} on average"
        print_line(f"{task.task or 'no task'}: {task.changed:,} of {pluralize(task.jobs, 'label')} changed; {margins}")
        for old, new, count in task.labels:
            print_line(f"  {old} → {new}: {count:,}")
    if changed:
        table = Table("job_id", "before", "margin", "after", "margin")
        for pair in changed[:SHOWN_ROWS]:
            cells = (pair.job_id, pair.label_before, pair.margin_before, pair.label_after, pair.margin_after)
            table.add_row(*[cell(f"{value:.3f}" if isinstance(value, float) else value) for value in cells])
        OUT.print(table)
    if len(changed) > SHOWN_ROWS:
        print_line(f"... and {len(changed) - SHOWN_ROWS:,} more; use --json for all of them.")


def write_report(run: str, *, out: str | None, job_ids: list[str]) -> None:
    """Write a run's report page, from its current rows."""
    if out:
        require_parent_folder(out)
    with open_database(ServiceName.POSTGRES, ServiceName.S3) as (settings, engine):
        row = find_run(engine, run)
        if settings.store.uri is None:
            raise ConfigurationError("A report needs the store of the run's frames; set REELABEL_STORE_URI.")
        objects = ObjectStore(settings.store, settings.web)
        with OUT.status("Rendering the report"):
            page = page_of_run(engine, objects, row, cache=frame_cache(settings), job_ids=job_ids)
        name = short_ids(engine, [row["run_id"]])[row["run_id"]]
    target = Path(out or f"reelabel-{name}.html")
    target.write_text(page, encoding="utf-8")
    print_line(f"Wrote {target.absolute()}; open it in a browser.")
