"""`reelabel evaluate` and `reelabel calibrate`."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from flows.cli.console import OUT, cell, make_table, print_json, print_line, require_parent_folder, write_output
from flows.cli.context import find_run, open_database, ready_to_run
from flows.cli.options import LabelledManifest, example, with_evaluate
from flows.cli.runs.follow import show_progress
from flows.cli.runs.run import create_flow_run, run_flow_here
from flows.compare.tables import GROUP_COLUMNS, SPEC_COLUMNS, group_cells, spec_cells
from infra.database.connect import Role, connected
from infra.program import command
from reelabel.sources.object_info import absolute_uri
from reelabel.sources.object_store import ObjectStore
from reelabel.text import pluralize
from tasks.database.scope import Scope
from tasks.domain import LOW_CHOICE_MASS
from tasks.evaluation.calibration import BINS
from tasks.evaluation.calibration import calibrate as fit_temperature
from tasks.manifest.check import require_choices
from tasks.manifest.location import dataset_name
from tasks.manifest.table import read_jobs
from tasks.results.evaluation.calibrations import known_answers, save_calibration
from tasks.results.evaluation.evaluations import last_evaluation
from tasks.results.runs import newest_run, require_only_spec, short_ids

if TYPE_CHECKING:
    from sqlalchemy import RowMapping

    from tasks.evaluation.calibration import Calibration
    from tasks.evaluation.scores import Evaluation, GroupScore

_PRINTED = "-"


@example("reelabel evaluate known.parquet --sampler keyframes --sampler keyframes:32")
@with_evaluate
def evaluate(
    manifest: LabelledManifest,
    *,
    sampler: Annotated[
        list[str] | None, typer.Option(help="SAMPLER[:FRAMES][,OPTION=VALUE...]; repeatable. Default: keyframes.")
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="Model folder or Hugging Face name; repeatable. Default: model.name.")
    ] = None,
    options: Any,  # noqa: ANN401 - the fields of a request
    json: Annotated[str | None, typer.Option(help="Write the evaluation as JSON to this file; - prints it.")] = None,
) -> None:
    """Compare samplers, frame counts and models on a manifest with known answers."""
    if json not in {None, _PRINTED}:
        require_parent_folder(str(json))
    uri = absolute_uri(manifest)
    parameters = {"manifest": uri, "samplers": sampler or ["keyframes"], "models": model or [], **options.model_dump()}
    with ready_to_run() as settings, connected(settings.database, Role.READER) as engine:
        from flows.evaluate import evaluate as flow  # noqa: PLC0415 - see prefect_ready

        progress = show_progress(lambda: newest_run(engine, manifest_uri=uri, dataset=None))
        with nullcontext() if json == _PRINTED else progress:
            run_flow_here(flow, create_flow_run(flow, parameters), parameters)
        evaluation = last_evaluation(engine, dataset=options.dataset or dataset_name(uri))
    assert evaluation is not None
    if json == _PRINTED:
        print(evaluation.to_json())  # noqa: T201 - for programs
    else:
        print_evaluation(evaluation)
        if json:
            write_output(json, evaluation.to_json() + "\n")
    raise typer.Exit(1 if any(spec.failures for spec in evaluation.specs) else 0)


@example("reelabel calibrate known.parquet")
def calibrate(
    manifest: LabelledManifest,
    run: Annotated[
        str | None,
        typer.Option(
            help="Run whose labels to use: an id, or 'last'. Default: the manifest's runs, if all have one spec."
        ),
    ] = None,
    *,
    json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Fit a temperature on known answers so that confidence matches accuracy."""
    uri = absolute_uri(manifest)
    with open_database(store=True, login=Role.WRITER) as (settings, engine):
        jobs = read_jobs(uri, ObjectStore(settings.store, settings.web))
        require_choices(uri, has_choices=any(job.choices for job in jobs))
        row = find_run(engine, run) if run else require_only_spec(engine, uri)
        scope = Scope.of(row)
        calibration = fit_temperature(known_answers(engine, scope, jobs=jobs))
        save_calibration(engine, calibration, scope, run_id=row["run_id"], manifest_uri=uri)
        name = short_ids(engine, [row["run_id"]])[row["run_id"]]
    if json:
        facts = {"run_id": str(row["run_id"])} | scope.key | asdict(calibration) | {"bins": BINS}
        print_json(facts)
        return
    _print(row, calibration, name=name)


def _print(run: RowMapping, calibration: Calibration, *, name: str) -> None:
    known = f"{pluralize(calibration.jobs, 'known answer')}, {calibration.wrong:,} labels wrong"
    figures = {
        "accuracy": (calibration.accuracy, calibration.accuracy),
        "mean confidence": (calibration.confidence_before, calibration.confidence_after),
        f"expected calibration error, {BINS} bins": (calibration.ece_before, calibration.ece_after),
        "negative log-likelihood": (calibration.nll_before, calibration.nll_after),
    }
    rows = ((name, f"{before:.4f}", f"{after:.4f}") for name, (before, after) in figures.items())
    OUT.print(make_table(("", "raw", "calibrated (held out)"), rows, title=f"{run['dataset']}: {known}"))
    first, second = calibration.half_temperatures
    print_line(
        f"Temperature {calibration.temperature:.3f} ({calibration.temperature_low:.3f} to "
        f"{calibration.temperature_high:.3f}), fitted on the labels of run {name} (spec {run['spec_id']}); on each "
        f"half of its videos: {first:.3f} and {second:.3f}."
    )
    print_line(
        f"Held-out negative log-likelihood changes by {calibration.nll_change:+.4f} "
        f"({calibration.nll_change_low:+.4f} to {calibration.nll_change_high:+.4f})."
    )
    if calibration.nll_change_high >= 0:
        print_line("Calibration is not shown to improve held-out answers: use the raw probabilities.")
    else:
        print_line(f"See calibrated labels: {command('results', name, calibrated=True)}")


# Two tables, with two lines per cell, so that both fit in 80 columns.
_SCORES = ("accuracy (95%)", "difference (95%)", "p (Holm)", "calibration error")
_COSTS = ("labels", "failures", "jobs/s", "frames decoded", "decode s", "MB read")


def print_evaluation(evaluation: Evaluation) -> None:
    """Print an evaluation: all candidates with their scores, then their costs, then scores by task and subtask."""
    known = pluralize(evaluation.known, "known answer")
    print_line(f"{evaluation.dataset}: {known}, compared with {evaluation.baseline}")
    rows = [dict(zip(SPEC_COLUMNS, spec_cells(spec), strict=True)) for spec in evaluation.specs]
    for names in (_SCORES, _COSTS):
        shown = [name for name in names if any(row[name] for row in rows)]
        cells = ([_cell(row[name]) for name in ("candidate", *shown)] for row in rows)
        OUT.print(make_table(("candidate", *shown), cells, numbers=len(shown)))
    for groups in (evaluation.tasks, evaluation.subtasks):
        if groups:
            _print_groups(groups)
    for spec in evaluation.specs:
        _print_extremes(evaluation, spec.name)
        if spec.low_mass:
            print_line(
                f"{spec.name}: {pluralize(spec.low_mass, 'label')} with choice_mass below {LOW_CHOICE_MASS}, "
                "which mean little: the model would have answered something else."
            )
        if spec.cost.videos_cached:
            of = f"{spec.cost.videos_cached:,} of {pluralize(spec.cost.videos or 0, 'video')}"
            print_line(f'{spec.name}: the frames of {of} came from the cache; "decode s" excludes them.')


def _cell(text: str) -> Text:
    return Text(text.replace(" (", "\n").removesuffix(")") if " to " in text else text)


def _print_groups(groups: tuple[GroupScore, ...]) -> None:
    columns = ("task / subtask", *GROUP_COLUMNS[2:])
    table = make_table(columns, (), numbers=len(columns) - 1)
    for title, candidates in groupby(groups, lambda group: group.title):
        table.add_row(cell(title or "no task"))
        for group in candidates:
            _, candidate, *numbers = group_cells(group)
            table.add_row(cell(f"  {candidate}"), *map(_cell, numbers))
        table.add_section()
    OUT.print(table)


def _print_extremes(evaluation: Evaluation, spec: str) -> None:
    ordered = evaluation.by_difference(spec)
    if len(ordered) > 1:
        (worst, low), (best, high) = (_title_and_points(ordered[0]), _title_and_points(ordered[-1]))
        print_line(f"{spec}: worst on {worst} ({low} points), best on {best} ({high}).")


def _title_and_points(group: GroupScore) -> tuple[str, str]:
    assert group.difference is not None
    return group.title or "jobs without task", f"{group.difference.value * 100:+.1f}"
