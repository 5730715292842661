"""`reelabel diff`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.console import OUT, make_table, print_json, print_line
from flows.cli.context import find_run, open_database
from flows.cli.options import Run, example
from reelabel.errors import ConfigurationError
from reelabel.text import pluralize
from tasks.results.diff import compare_runs
from tasks.results.runs import short_ids

if TYPE_CHECKING:
    from tasks.results.diff import RunDiff

_SHOWN_ROWS = 20


@example("reelabel diff last")
def diff(
    run: Run = "last",
    earlier: Annotated[
        str | None, typer.Argument(help="Run to compare with. Default: the answers that RUN replaced.")
    ] = None,
    *,
    json: Annotated[bool, typer.Option("--json", help="Print all compared answers as JSON.")] = False,
) -> None:
    """Compare the labels and margins of two runs; answers in words are left out."""
    with open_database() as (_, engine):
        row = find_run(engine, run)
        before = find_run(engine, earlier) if earlier else None
        if before is not None and before["dataset"] != row["dataset"]:
            raise ConfigurationError(
                f"Run {before['run_id']} is of dataset {before['dataset']}, not {row['dataset']}; use two runs of one "
                f"dataset."
            )
        names = short_ids(engine, [each["run_id"] for each in (row, before) if each])
        found = compare_runs(engine, row["run_id"], earlier=before["run_id"] if before else None)
    if json:
        shown = {"tasks": [asdict(task) for task in found.tasks], "jobs": [asdict(pair) for pair in found.pairs]}
        print_json(shown | {"other_questions": found.other_questions})
        return
    than = f"run {names[before['run_id']]}" if before else "the answers that it replaced"
    _print(found, f"Run {names[row['run_id']]} of {row['dataset']} against {than}")


def _print(found: RunDiff, title: str) -> None:
    changed = [pair for pair in found.pairs if pair.has_changed]
    print_line(f"{title}: {pluralize(len(found.pairs), 'job')} compared, {pluralize(len(changed), 'label')} changed.")
    if found.other_questions:
        print_line(f"Left out: {pluralize(found.other_questions, 'job')} with another question than before.")
    for task in found.tasks:
        margins = f"{pluralize(task.up, 'margin')} up, {task.down:,} down, by {task.margin_change:+.3f} on average"
        print_line(f"{task.task or 'no task'}: {task.changed:,} of {pluralize(task.jobs, 'label')} changed; {margins}")
        for old, new, count in task.labels:
            print_line(f"  {old} → {new}: {count:,}")
    if changed:
        columns = ("job_id", "before", "margin", "after", "margin")
        rows = (
            (pair.job_id, pair.label_before, pair.margin_before, pair.label_after, pair.margin_after)
            for pair in changed[:_SHOWN_ROWS]
        )
        OUT.print(make_table(columns, rows))
    if len(changed) > _SHOWN_ROWS:
        print_line(f"... and {len(changed) - _SHOWN_ROWS:,} more; use --json for all of them.")
