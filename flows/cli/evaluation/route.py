"""`reelabel route fit`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.console import OUT, make_table, print_json, print_line
from flows.cli.context import ready_to_run
from flows.cli.options import Dataset, LabelledManifest, example, with_overrides
from flows.cli.runs.run import run_flow_locally
from flows.run.request import ClassifyRequest, QuestionOptions
from flows.run.spec import make_spec
from infra.database.connect import connected
from infra.settings import SamplingOptions
from reelabel.sampling.options import dense_pass
from reelabel.sources.object_info import absolute_uri
from reelabel.sources.object_store import ObjectStore
from reelabel.text import pluralize
from tasks.evaluation.route import fit_route
from tasks.manifest.check import require_choices
from tasks.manifest.location import dataset_name
from tasks.manifest.table import read_jobs
from tasks.model.backend import backend_of
from tasks.results.evaluation.routes import paired_answers, save_route

if TYPE_CHECKING:
    from infra.settings import Settings
    from tasks.domain import RunSpec
    from tasks.evaluation.route import RouteFit, RouteProof

commands = typer.Typer(epilog="Example: reelabel route fit known.parquet --sampler auto")


@commands.command("fit")
@example("reelabel route fit known.parquet --sampler auto --max-loss 1")
@with_overrides
def route_fit(
    manifest: LabelledManifest,
    *,
    max_loss: Annotated[
        float,
        typer.Option(min=0, max=100, help="Accuracy, in percentage points, that may be lost to the dense sampler."),
    ] = 1.0,
    dataset: Dataset = None,
    overrides: QuestionOptions,
    json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Fit the margin below which jobs are escalated to the dense sampler, for `--escalate-below fitted`.

    It is stored if known answers prove that it loses at most --max-loss; otherwise exits with 1. Unanswered jobs are
    answered first.
    """
    within, uri = max_loss / 100, absolute_uri(manifest)
    dataset = dataset or dataset_name(uri)
    with ready_to_run() as settings:
        passes = _passes(settings, overrides)
        escalating, first, dense = (_spec(settings, each) for each in passes)
        jobs = read_jobs(uri, ObjectStore(settings.store, settings.web))
        require_choices(uri, has_choices=any(job.choices for job in jobs))
        for each in passes[1:]:
            request = ClassifyRequest.of(manifest=uri, dataset=dataset, overrides=each)
            run_flow_locally(request, settings, is_watched=not json)
        with connected(settings.database) as engine:
            sample = paired_answers(engine, dataset=dataset, first=first, dense=dense, jobs=jobs)
            fit = fit_route(sample, within)
            if fit.proven:
                save_route(engine, fit, specs=(escalating, first, dense), dataset=dataset, manifest_uri=uri)
    if json:
        print_json({"dataset": dataset, "spec_id": escalating.spec_id} | asdict(fit))
    else:
        _print(fit, title=f"{dataset}, spec {escalating.spec_id}: {pluralize(fit.jobs, 'known answer')}")
        _print_tasks(fit.proof, within)
        _print_verdict(fit, within)
    raise typer.Exit(0 if fit.proven else 1)


def _passes(settings: Settings, overrides: QuestionOptions) -> list[QuestionOptions]:
    sampling = overrides.sampling
    sampler = sampling.sampler or settings.sampling.sampler
    options = sampling.model_copy(update={"sampler": sampler if sampler == "auto" else "keyframes"})
    escalating = options.model_copy(update={"escalate_below": "fitted"})
    spec = _spec(settings, overrides.model_copy(update={"sampling": escalating}))
    plain = dense_pass(spec.sampling).to_dict()
    known = {name: value for name, value in plain.items() if name in SamplingOptions.model_fields}
    first = {"escalate_below": 0.0} | ({} if sampler == "auto" else {"dense_sampler": None})
    samplings = (escalating, options.model_copy(update=first), SamplingOptions(**known))
    return [overrides.model_copy(update={"sampling": each}) for each in samplings]


def _spec(settings: Settings, overrides: QuestionOptions) -> RunSpec:
    return make_spec(backend_of(settings).model_info(overrides.model, settings), settings, overrides)


def _print(fit: RouteFit, *, title: str) -> None:
    rows = [("dense sampler only", fit.dense), ("first answers only", fit.first)]
    rows += [(f"proven, below {fit.proven.below:.4g}", fit.proven)] if fit.proven else []
    cells = (
        (name, f"{each.asked_again:.1%}", f"{each.accuracy:.4f}", each.frames_decoded, f"{each.seconds:.1f}")
        for name, each in rows
    )
    OUT.print(make_table(("", "escalated", "accuracy", "frames", "seconds"), cells, title=title))


def _print_tasks(proof: RouteProof, within: float) -> None:
    if not proof.tasks:
        return
    rows = []
    for task in proof.tasks:
        proven = "yes" if task.at_most <= within else "no"
        rows.append((task.name or "no task", task.jobs, f"{100 * task.loss:+.2f}", f"{100 * task.at_most:.2f}", proven))
    columns = ("task", "jobs", "loses, points", "at most", "proven")
    OUT.print(make_table(columns, rows, title="Loss at this margin, by task"))


def _print_verdict(fit: RouteFit, within: float) -> None:
    """Print what the sample proves, and recommend the margin only if its loss is within the limit."""
    proof, overall = fit.proof, fit.proof.overall
    wanted = f"a loss of at most {100 * within:g} points"
    if fit.proven is None:
        enough = f"; that takes about {pluralize(proof.enough_jobs, 'job')}" if proof.enough_jobs else ""
        print_line(
            f"This sample of {pluralize(overall.jobs, 'job')} proves at most {100 * overall.at_most:.2f} points of "
            f"loss, even at the largest margin that keeps a first answer, and not {wanted}{enough}. No margin was "
            f"stored: add known answers, raise --max-loss, or use the dense sampler."
        )
        return
    spared = 1 - fit.proven.frames_decoded / max(1, fit.dense.frames_decoded)
    print_line(
        f"Below a margin of {fit.proven.below:.4g}, this sample proves {wanted}: {100 * overall.loss:.2f} points are "
        f"lost in it, and at most {100 * overall.at_most:.2f} at 95% confidence. "
        f"{abs(spared):.0%} {'fewer' if spared >= 0 else 'more'} frames are decoded than by the dense sampler alone."
    )
    unproven = proof.unproven(within)
    if not unproven:
        print_line("To use it: --escalate-below fitted")
        return
    names = ", ".join(f"{task.name or 'no task'} (at most {100 * task.at_most:.1f} points)" for task in unproven)
    print_line(f"It proves this for all jobs together, but not for {names}.")
    tasks = ",".join(task.name for task in unproven if task.name)
    if len(unproven) < len(proof.tasks) and tasks:
        print_line(f"To use it for the other tasks, fit again with --sampler auto --motion-tasks {tasks}")
    print_line("To use it for the same mix of tasks: --escalate-below fitted")
