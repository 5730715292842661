"""Prints the summary of a run: outcomes, duration, and locations of results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from rich.table import Table

from flows.cli.console import OUT, cell, print_line
from flows.run.result import cost_lines
from infra.database.connect import Role, connected
from infra.embedded import ServiceName, is_kept, status
from infra.program import command
from reelabel.errors import ObjectError, ReelabelError
from reelabel.sources.object_info import redact_uri
from reelabel.sources.object_store import ObjectStore
from reelabel.text import pluralize
from tasks.database.scope import Scope
from tasks.domain import RunSpec
from tasks.domain.coverage import DOCS_PAGE, coverage_warnings
from tasks.manifest.rejects import REJECTED_FILE
from tasks.manifest.table import open_audited
from tasks.report.pages import page_uri, rejected_uri
from tasks.results.audit import audit_jobs
from tasks.results.descriptions import count_frames
from tasks.results.evaluation.routing import read_routing
from tasks.results.runs import read_any_spec, read_run, short_ids
from tasks.results.summary import summarize_results, warn_of_low_mass

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    from sqlalchemy import RowMapping

    from infra.settings import Settings
    from tasks.results.audit import AuditReport
    from tasks.results.evaluation.routing import Routing
    from tasks.results.summary import Summary


def download_report(settings: Settings, run_id: UUID) -> str | None:
    """Copy a run's page to the home folder; return its path, its URI if that cannot be, or None without a page."""
    assert settings.store.uri is not None
    uri = page_uri(settings.store.uri, run_id)
    try:
        page = ObjectStore(settings.store, settings.web).read(uri)
    except ObjectError:
        return None
    if not settings.home.is_dir():
        return uri
    target = settings.home / "reports" / f"{run_id}.html"
    try:
        ObjectStore().replace(str(target), page)
    except ReelabelError:  # the run is done, whether or not the folder can be written
        return uri
    return str(target.absolute())


_STAGES = (
    *("engine start", "fetch", "decode", "embed", "scenes", "cache write", "cache read"),
    *("describe", "preprocess", "inference", "database"),
)


def print_summary(settings: Settings, run_id: UUID) -> int:
    """Print a run's summary; return the exit code: 1 if a job of the manifest failed, or of the selected jobs."""
    with connected(settings.database, Role.READER) as engine:
        row, shown_id = read_run(engine, run_id), short_ids(engine, [run_id])[run_id]
        assert row is not None
        scope = Scope.of(row)
        objects, keep_going = ObjectStore(settings.store, settings.web), bool(row["jobs_rejected"])
        spec = read_any_spec(engine, scope.spec_id)
        asks_questions = isinstance(spec, RunSpec)
        with open_audited(row["manifest_uri"], objects, keep_going=keep_going, questions=asks_questions) as read:
            report = audit_jobs(engine, scope, jobs=read())
            summary = summarize_results(engine, scope, jobs=read(), run_id=run_id, only_run=row["kind"] == "backfill")
        routing = read_routing(engine, scope, run_id=run_id) if asks_questions else None
        frames = None if asks_questions else count_frames(engine, run_id)
    OUT.print(_table(row, report, summary, routing, model=spec.model.name, frames=frames))
    print_line(f"Results: {command('results', shown_id)}")
    if page := download_report(settings, run_id):
        print_line(f"Report: {page}")
    if link := prefect_link(settings, run_id):
        print_line(f"Prefect: {link}")
    if rejected := _save_rejects(settings, row):
        print_line(f"Rejected {pluralize(row['jobs_rejected'], 'row')} of the manifest: {rejected} has the reasons.")
    if row["kind"] == "backfill":
        return 1 if row["jobs_failed"] else 0
    return 0 if report.is_reconciled and not report.failures and not rejected else 1


def _save_rejects(settings: Settings, row: RowMapping) -> str | None:
    """Copy the list of rejected rows to the current folder; return its path, or None if there is none."""
    if not row["jobs_rejected"] or row["kind"] == "backfill":
        return None
    assert settings.store.uri is not None
    uri = rejected_uri(settings.store.uri, row["run_id"])
    target = Path.cwd() / REJECTED_FILE
    try:
        target.write_bytes(ObjectStore(settings.store, settings.web).read(uri))
    except (ObjectError, OSError):
        return uri
    return str(target)


def prefect_link(settings: Settings, run_id: UUID) -> str | None:
    """Return the address of a run's page in Prefect; None if the server stops with this command."""
    if (url := settings.prefect.api_url) is None:
        return None
    embedded = [service.address for service in status(settings.home) if service.name == ServiceName.PREFECT]
    if urlsplit(url).netloc in embedded and not is_kept(settings.home):
        return None
    return f"{redact_uri(url).removesuffix('/api')}/runs/flow-run/{run_id}"


def _accuracies(summary: Summary) -> Iterator[tuple[str, str]]:
    scores = [score for score in summary.tasks if score.known]
    if len(scores) == 1:
        named = {scores[0].task or "all": scores[0]}
    else:
        named = {score.task or "no task": score for score in scores} | {"all": summary.overall}
    for name, score in named.items():
        if score.known:
            yield name, f"{score.accuracy:.3f} ({score.correct:,} of {score.known:,})"


def _table(
    row: RowMapping,
    report: AuditReport,
    summary: Summary,
    routing: Routing | None,
    *,
    model: str,
    frames: tuple[int, int] | None,
) -> Table:
    seconds = (row["ended_at"] - row["started_at"]).total_seconds()
    ended = row["jobs_labelled"] + row["jobs_failed"]
    reason = "not selected, or already finished" if row["kind"] == "backfill" else "already finished"
    skipped = f" ({row['jobs_skipped']:,} {reason})" if row["jobs_skipped"] else ""
    noun, verb, prepared = (
        ("label", "answered", "extracted") if frames is None else ("description", "described", "embedded")
    )
    outcomes = f"{pluralize(row['jobs_labelled'], noun)}, {pluralize(row['jobs_failed'], 'failure')}"
    lines = [
        ("model", model),
        ("jobs", f"{row['jobs_total']:,}{skipped}"),
        (f"{verb} in this run", f"{ended:,} ({outcomes})"),
        ("videos", f"{row['videos_extracted']:,} {prepared}, {row['videos_cached']:,} from the cache"),
    ]
    if frames is not None:
        lines.append(("frames", f"{frames[0]:,} decoded, {frames[1]:,} embedded"))
    lines += [(f"accuracy: {name}", share) for name, share in _accuracies(summary)]
    lines += routing.lines() if routing else []
    spent_ms = row["stage_ms"] if ended else {}
    lines += [(f"seconds: {stage}", f"{spent_ms[stage] / 1e3:.2f}") for stage in _STAGES if stage in spent_ms]
    lines.append(("seconds: total", f"{seconds:.1f}"))
    lines += cost_lines(row)
    for group in summary.failures:
        when = "before this run" if group.is_earlier else "by another run"
        earlier = f" since {group.since.astimezone():%Y-%m-%d %H:%M}, {when}" if group.since else ""
        example = f"for example {group.job_id}: {group.message}"
        lines.append((f"failed: {group.code}", f"{group.count:,}{earlier}, {example}"))
    if summary.order:
        lines.append(("order of choices", str(summary.order)))
        if summary.order.warning:
            lines.append(("warning", f"{summary.order.warning}."))
    if warning := warn_of_low_mass(summary.low_mass):
        lines.append(("warning", f"{warning}."))
    if summary.cut_short:
        labels = pluralize(summary.cut_short, "label")
        lines.append(("truncated videos", f"{labels} from incomplete videos, for example {summary.cut_short_job_id}"))
    warnings = coverage_warnings(row["coverage"])
    lines += [("keyframes", f"{warning}.") for warning in warnings]
    if warnings:
        lines.append(("read more", DOCS_PAGE))
    lines.append(("audit", str(report) if row["kind"] != "backfill" else f"selected jobs only: {row['message']}"))
    table = Table(title=cell(f"{row['kind']} of {row['dataset']}"), show_header=False)
    for name, value in lines:
        table.add_row(cell(name), cell(value))
    return table
