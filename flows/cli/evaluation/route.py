"""`reelabel route fit`."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.table import Table

from flows.cli.console import OUT, cell, print_line
from flows.cli.context import ready_to_run
from flows.cli.runs.run import run_flow_locally
from flows.run.spec import make_spec
from infra.database.connect import connected
from infra.settings import SamplingOptions
from reelabel.sampling.passes import dense_pass
from reelabel.sources.object_info import absolute_uri
from reelabel.sources.object_store import ObjectStore
from reelabel.text import pluralize
from tasks.evaluation.route_fit import fit_route
from tasks.evaluation.route_needs import NON_INFERIORITY_BOUND, fit_still_tasks
from tasks.manifest.dataset import dataset_name
from tasks.manifest.table import read_jobs
from tasks.model.backend import backend_of
from tasks.results.evaluation.routes import paired_answers, save_route

if TYPE_CHECKING:
    from flows.run.parameters import SpecOverrides
    from infra.settings import Settings
    from tasks.domain import RunSpec
    from tasks.evaluation.route_fit import RouteFit, RoutingPoint
    from tasks.evaluation.route_needs import StillFit
    from tasks.evaluation.route_proof import RouteProof, Target


def fit_margin(
    manifest: str,
    target: Target,
    *,
    overrides: SpecOverrides,
    dataset: str | None,
    as_json: bool,
) -> int:
    """Fit the margin below which jobs are escalated, save it if it is proven, and print it.

    Return the exit code, 1 if no margin is proven to reach the target.

    Missing answers are computed first, from keyframes (or with `auto`) and with the dense sampler. If all jobs are
    answered from keyframes, also print the tasks for which keyframes are always enough.

    Raises:
        ManifestError: Too few answers are known, or the target cannot be reached.
    """
    uri = absolute_uri(manifest)
    dataset = dataset or dataset_name(uri)
    with ready_to_run() as settings:
        passes = _passes(settings, overrides)
        escalating, first, dense = (_spec(settings, each) for each in passes)
        for each in passes[1:]:
            parameters = {"manifest": uri, "dataset": dataset, "overrides": each.as_parameter()}
            run_flow_locally("classify", parameters, settings, is_watched=not as_json)
        with connected(settings.database) as engine:
            jobs = read_jobs(uri, ObjectStore(settings.store, settings.web))
            sample = paired_answers(engine, dataset=dataset, first=first, dense=dense, jobs=jobs)
            fit = fit_route(sample, target)
            if fit.proven:
                save_route(engine, fit, specs=(escalating, first, dense), dataset=dataset, manifest_uri=uri)
    still = fit_still_tasks(sample) if first.sampling.sampler == "keyframes" else None
    if as_json:
        facts = {"dataset": dataset, "spec_id": escalating.spec_id} | asdict(fit)
        print(json.dumps(facts | {"still": asdict(still) if still else None}, indent=2))  # noqa: T201
        return 0 if fit.proven else 1
    if still and still.needs:
        _print_still(still)
    _print(fit, title=f"{dataset}, spec {escalating.spec_id}: {pluralize(fit.jobs, 'known answer')}")
    _print_tasks(fit.proof, target)
    _print_verdict(fit, target)
    return 0 if fit.proven else 1


def _passes(settings: Settings, overrides: SpecOverrides) -> list[SpecOverrides]:
    """Return the overrides of a run that escalates, and of runs that give its first and its second answers."""
    sampling = overrides.sampling
    sampler = sampling.sampler or settings.sampling.sampler
    asked = sampling.model_copy(update={"sampler": sampler if sampler == "auto" else "keyframes"})
    escalating = asked.model_copy(update={"escalate_below": "fitted"})
    spec = _spec(settings, overrides.model_copy(update={"sampling": escalating}))
    plain = dense_pass(spec.sampling).to_dict()
    known = {name: value for name, value in plain.items() if name in SamplingOptions.model_fields}
    first = {"escalate_below": 0.0} | ({} if sampler == "auto" else {"dense_sampler": None})
    samplings = (escalating, asked.model_copy(update=first), SamplingOptions(**known))
    return [overrides.model_copy(update={"sampling": each}) for each in samplings]


def _spec(settings: Settings, overrides: SpecOverrides) -> RunSpec:
    return make_spec(backend_of(settings).card(overrides.model, settings), settings, overrides)


def _print_still(still: StillFit) -> None:
    columns = ("task or subtask", "jobs", "keyframes", "dense", "difference (95% interval)", "keyframes enough")
    table = Table(*columns, title="Accuracy lost with keyframes")
    for need in still.needs:
        lost = need.difference
        table.add_row(
            cell(need.name),
            f"{lost.jobs:,}",
            f"{need.first:.4f}",
            f"{need.dense:.4f}",
            f"{lost.value:+.4f} ({lost.low:+.4f} to {lost.high:+.4f})",
            "yes" if need.is_still else "not proven",
        )
    OUT.print(table)
    bound = f"lose less than {100 * NON_INFERIORITY_BOUND:g} points of accuracy with keyframes, at 95% confidence"
    if not still.tasks:
        print_line(f"No task is shown to {bound}.")
        return
    print_line(f"Tasks that {bound}: --sampler auto --still-tasks {','.join(still.tasks)}")
    if still.held_out:
        lost = still.held_out
        print_line(
            f"Held out: tasks chosen on half of the videos lose {-100 * lost.value:.2f} points on {lost.jobs:,} others."
        )


def _print(fit: RouteFit, *, title: str) -> None:
    table = Table("", "escalated", "accuracy", "loses at most", "frames", "seconds", title=cell(title))
    named = [
        ("dense sampler only", fit.dense),
        ("first answers only", fit.first),
        (f"estimated, below {fit.below:.4g} (held out)", fit.held_out),
    ]
    if fit.proven:
        named.append((f"proven, below {fit.proven.below:.4g}", fit.proven))
    for name, each in named:
        table.add_row(name, *_cells(each))
    table.add_section()
    for each in fit.curve:
        table.add_row(f"below {each.below:.4g}", *_cells(each))
    OUT.print(table)


def _print_tasks(proof: RouteProof, target: Target) -> None:
    if not proof.tasks:
        return
    table = Table("task", "jobs", "loses, points", "at most", title="Loss at this margin, by task")
    is_loss = target.accuracy is None
    if is_loss:
        table.add_column("proven")
    for task in proof.tasks:
        verdict = ["yes" if task.at_most <= target.within else "no"] if is_loss else []
        loss = (f"{100 * task.loss:+.2f}", f"{100 * task.at_most:.2f}")
        table.add_row(cell(task.name or "no task"), f"{task.jobs:,}", *loss, *verdict)
    OUT.print(table)


def _print_verdict(fit: RouteFit, target: Target) -> None:
    """Say what the sample proves, and recommend the margin only if that is what was asked for."""
    proof, overall = fit.proof, fit.proof.overall
    wanted = (
        f"a loss of at most {100 * target.within:g} points"
        if target.accuracy is None
        else f"an accuracy of {target.accuracy:g}"
    )
    if fit.proven is None:
        enough = f"; that takes about {pluralize(proof.enough_jobs, 'job')}" if proof.enough_jobs else ""
        print_line(
            f"This sample of {pluralize(overall.jobs, 'job')} proves at most {100 * overall.at_most:.2f} points of "
            f"loss, even at the largest margin that keeps a first answer, and not {wanted}{enough}. No margin was "
            "stored: know more answers, ask for less, or use the dense sampler."
        )
        return
    spared = 1 - fit.proven.frames_decoded / max(1, fit.dense.frames_decoded)
    print_line(
        f"Below a margin of {fit.proven.below:.4g}, this sample proves {wanted}: {100 * overall.loss:.2f} points are "
        f"lost in it, and at most {100 * overall.at_most:.2f} at 95% confidence. "
        f"{abs(spared):.0%} {'fewer' if spared >= 0 else 'more'} frames are decoded than by the dense sampler alone."
    )
    unproven = proof.unproven(target.within) if target.accuracy is None else ()
    if not unproven:
        print_line("To use it: --escalate-below fitted")
        return
    names = ", ".join(f"{task.name or 'no task'} (at most {100 * task.at_most:.1f} points)" for task in unproven)
    print_line(f"It proves this for all jobs together, but not for {names}.")
    tasks = ",".join(task.name for task in unproven if task.name)
    if len(unproven) < len(proof.tasks) and tasks:
        print_line(f"To use it for the other tasks, fit again with --sampler auto --motion-tasks {tasks}")
    print_line("To use it where tasks are mixed as in this sample: --escalate-below fitted")


def _cells(each: RoutingPoint) -> tuple[str, ...]:
    at_most = "" if each.loss_at_most is None else f"{100 * each.loss_at_most:.2f}"
    return f"{each.asked_again:.1%}", f"{each.accuracy:.4f}", at_most, f"{each.frames_decoded:,}", f"{each.seconds:.1f}"
