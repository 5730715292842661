"""`reelabel evaluate`."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from flows.commands.opened import connected, running_services, startup_errors
from flows.commands.scheduler import prefect_ready
from flows.commands.target import require_parent_folder
from flows.commands.terminal import OUT, print_line
from flows.commands.watch import show_progress_of_manifest
from flows.evaluation_cells import GROUP_COLUMNS, SPEC_COLUMNS, group_cells, spec_cells
from flows.names import TAG
from infra.embedded import ServiceName
from infra.health import probe_store
from infra.uri import absolute_uri
from infra.wording import pluralize
from tasks.manifest.read import dataset_name
from tasks.results.evaluations import last_evaluation
from tasks.results.schema import prepare_database

if TYPE_CHECKING:
    from tasks.evaluation.scores import Evaluation, GroupScore

_PRINTED = "-"


def run_evaluate(manifest: str, *, json_to: str | None, **asked: Any) -> int:  # noqa: ANN401 - the flow's own
    """Compare candidates in this process, and print the result; return the exit code.

    Args:
        manifest: Manifest with known answers.
        json_to: File to write the evaluation to, besides printing tables; `-` prints it instead.
        asked: The flow's other parameters.
    """
    if json_to not in {None, _PRINTED}:
        require_parent_folder(str(json_to))
    parameters = {"manifest": absolute_uri(manifest)} | asked
    with (
        running_services(ServiceName.POSTGRES, ServiceName.S3, ServiceName.PREFECT) as settings,
        prefect_ready(settings),
    ):
        with startup_errors():
            prepare_database(settings.database)
            probe_store(settings.store)
        with connected(settings) as engine:
            with nullcontext() if json_to == _PRINTED else show_progress_of_manifest(engine, parameters["manifest"]):
                _run_flow(parameters)
            evaluation = last_evaluation(engine, dataset=asked["dataset"] or dataset_name(manifest))
    assert evaluation is not None
    if json_to == _PRINTED:
        print(evaluation.to_json())  # noqa: T201 - for programs
    else:
        print_evaluation(evaluation)
    if json_to not in {None, _PRINTED}:
        Path(str(json_to)).write_text(evaluation.to_json() + "\n", encoding="utf-8")
    return 1 if any(spec.failures for spec in evaluation.specs) else 0


def _run_flow(parameters: dict[str, Any]) -> None:
    from prefect.client.orchestration import get_client  # noqa: PLC0415
    from prefect.flow_engine import run_flow  # noqa: PLC0415

    from flows.evaluate import evaluate  # noqa: PLC0415

    with get_client(sync_client=True) as client:
        flow_run = client.create_flow_run(evaluate, parameters=parameters, tags=[TAG])
    run_flow(evaluate, flow_run=flow_run, parameters=parameters)


def print_evaluation(evaluation: Evaluation) -> None:
    """Print an evaluation: all candidates, then by task and subtask."""
    title = f"{evaluation.dataset}: {pluralize(evaluation.known, 'known answer')}, compared with {evaluation.baseline}"
    rows = [spec_cells(spec) for spec in evaluation.specs]
    known = [place for place in range(len(SPEC_COLUMNS)) if any(row[place] for row in rows)]
    table = Table(*(SPEC_COLUMNS[place] for place in known), title=Text(title))
    for row in rows:
        table.add_row(*(Text(row[place]) for place in known))
    OUT.print(table)
    for groups in (evaluation.tasks, evaluation.subtasks):
        if groups:
            _print_groups(groups)
    for spec in evaluation.specs:
        _print_extremes(evaluation, spec.name)
        if spec.cost.videos_cached:
            of = f"{spec.cost.videos_cached:,} of {pluralize(spec.cost.videos or 0, 'video')}"
            print_line(f'{spec.name}: the frames of {of} came from the cache; "decode s" excludes them.')


def _print_groups(groups: tuple[GroupScore, ...]) -> None:
    table = Table(*GROUP_COLUMNS)
    last = None
    for group in groups:
        cells = group_cells(group)
        if group.title == last:
            cells[0] = ""
        elif last is not None:
            table.add_section()
        last = group.title
        table.add_row(*map(Text, cells))
    OUT.print(table)


def _print_extremes(evaluation: Evaluation, spec: str) -> None:
    """Name the group in which a candidate loses the most, and that in which it gains the most."""
    ordered = evaluation.by_difference(spec)
    if len(ordered) > 1:
        (worst, low), (best, high) = (_end(ordered[0]), _end(ordered[-1]))
        print_line(f"{spec}: worst on {worst} ({low} points), best on {best} ({high}).")


def _end(group: GroupScore) -> tuple[str, str]:
    assert group.difference is not None
    return group.title or "jobs without task", f"{group.difference.value * 100:+.1f}"
