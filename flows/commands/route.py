"""`reelabel route fit`."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from flows.asker import read_card
from flows.commands.opened import at_start, services
from flows.commands.run import run_flow_here
from flows.commands.scheduler import prefect_ready
from flows.commands.terminal import OUT, say
from flows.spec import make_spec
from infra.database import connect
from infra.embedded import ServiceName
from infra.objects import ObjectStore
from infra.sampling_settings import SamplingChoice
from infra.uri import absolute_uri
from infra.wording import counted
from tasks.domain.passes import lossless_pass
from tasks.manifest.read import dataset_name, read_jobs
from tasks.results.routes import asked_twice, save_route
from tasks.results.schema import prepare_database
from tasks.routing.fit import fit_route
from tasks.routing.needs import SURELY_WITHIN, fit_still

if TYPE_CHECKING:
    from infra.settings import Settings
    from tasks.domain import RunSpec
    from tasks.routing.fit import Point, RouteFit, Target
    from tasks.routing.needs import StillFit


def fit_margin(
    manifest: str,
    target: Target,
    *,
    sampling: SamplingChoice,
    dataset: str | None,
    asking: dict[str, Any],
    as_json: bool,
) -> None:
    """Fit the margin below which jobs are asked again, keep it and print it.

    What is missing is asked first: from keyframes (or as `auto` has it), and losslessly. Where all jobs are asked
    from keyframes, it prints, too, which tasks lose nothing by that.

    Args:
        manifest: Jobs, whose answers are known as far as they count here.
        target: How good answers must be.
        sampling: As the cascade is going to sample.
        dataset: Where job ids are unique; None is the manifest's name.
        asking: `num_frames` and `model`, as of a run.
        as_json: Print figures for programs.

    Raises:
        ManifestError: It knows too few answers, or the target is out of reach.
    """
    uri = absolute_uri(manifest)
    dataset = dataset or dataset_name(uri)
    with services(ServiceName.POSTGRES, ServiceName.S3, ServiceName.PREFECT) as settings, prefect_ready(settings):
        with at_start():
            prepare_database(settings.database)
        choices = _choices(settings, sampling, asking)
        specs = [_spec(settings, choice, asking) for choice in choices]
        cascade, first, lossless = specs
        for choice in choices[1:]:
            parameters = {"manifest": uri, "dataset": dataset, "sampling": choice.model_dump(exclude_none=True)}
            run_flow_here("classify", parameters | asking, settings, is_watched=not as_json)
        engine = connect(settings.database)
        try:
            jobs = read_jobs(uri, ObjectStore(settings.store, settings.web))
            sample = asked_twice(engine, dataset=dataset, first=first, lossless=lossless, jobs=jobs)
            fit = fit_route(sample, target)
            save_route(engine, fit, specs=(cascade, first, lossless), dataset=dataset, manifest_uri=uri)
        finally:
            engine.dispose()
    still = fit_still(sample) if first.sampling.sampler == "keyframes" else None
    if as_json:
        facts = {"dataset": dataset, "spec_id": cascade.spec_id} | asdict(fit)
        print(json.dumps(facts | {"still": asdict(still) if still else None}, indent=2))  # noqa: T201
        return
    if still and still.needs:
        _print_still(still)
    _print(fit, title=f"{dataset}, spec {cascade.spec_id}: {counted(fit.jobs, 'known answer')}")


def _choices(settings: Settings, sampling: SamplingChoice, asking: dict[str, Any]) -> list[SamplingChoice]:
    """Say how the cascade samples, and how each of the two ways does between which it decides."""
    sampler = sampling.sampler or settings.sampling.sampler
    asked = sampling.model_copy(update={"sampler": sampler if sampler == "auto" else "keyframes"})
    cascade = asked.model_copy(update={"escalate_below": "fitted"})
    plain = lossless_pass(_spec(settings, cascade, asking).sampling).model_dump(exclude_none=True)
    known = {name: value for name, value in plain.items() if name in SamplingChoice.model_fields}
    first = {"escalate_below": 0.0} | ({} if sampler == "auto" else {"dense_sampler": None})
    return [cascade, asked.model_copy(update=first), SamplingChoice(**known)]


def _spec(settings: Settings, choice: SamplingChoice, asking: dict[str, Any]) -> RunSpec:
    card = read_card(asking["model"], settings)
    return make_spec(card, settings, num_frames=asking["num_frames"], choice=choice)


def _print_still(still: StillFit) -> None:
    columns = ("task or subtask", "jobs", "keyframes", "lossless", "difference, 95% interval", "any frame will do")
    table = Table(*columns, title=Text("What keyframes lose"))
    for need in still.needs:
        lost = need.difference
        table.add_row(
            Text(need.name),
            f"{lost.jobs:,}",
            f"{need.first:.4f}",
            f"{need.lossless:.4f}",
            f"{lost.value:+.4f} ({lost.low:+.4f} to {lost.high:+.4f})",
            "surely" if need.is_still else "not surely",
        )
    OUT.print(table)
    bound = f"surely lose less than {100 * SURELY_WITHIN:g} points by keyframes"
    if not still.tasks:
        say(f"No tasks {bound}.")
        return
    say(f"Tasks that {bound}: --sampler auto --still-tasks {','.join(still.tasks)}")
    if still.held_out:
        lost = still.held_out
        say(f"Chosen on the other half of the videos, they lose {-100 * lost.value:.2f} points on {lost.jobs:,} jobs.")


def _print(fit: RouteFit, *, title: str) -> None:
    columns = ("", "asked again", "accuracy", "frames decoded", "seconds")
    table = Table(*columns, title=Text(title))
    for name, each in (
        ("lossless", fit.lossless),
        ("first answers", fit.first),
        (f"asked again below {fit.below:.4g}, held out", fit.held_out),
    ):
        table.add_row(name, *_cells(each))
    table.add_section()
    for each in fit.curve:
        table.add_row(f"below {each.below:.4g}", *_cells(each))
    OUT.print(table)
    spared = 1 - fit.held_out.frames_decoded / max(1, fit.lossless.frames_decoded)
    first, second = fit.half_below
    say(f"Margin {fit.below:.4g}; fitted on each half alone: {first:.4g} and {second:.4g}.")
    say(f"It decodes {spared:.0%} fewer frames than dense sampling. Use it: --escalate-below fitted")
    if fit.held_out.accuracy < fit.target:
        say(f"On jobs it has not seen, it stays below the target of {fit.target:.4f}: fit it on more of them.")


def _cells(each: Point) -> tuple[str, str, str, str]:
    return f"{each.asked_again:.1%}", f"{each.accuracy:.4f}", f"{each.frames_decoded:,}", f"{each.seconds:.1f}"
