"""`python -m benchmarks pipeline`: services of its own, clips, models, and the report."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import typer

from benchmarks.console import OUT, PROGRESS, print_json
from benchmarks.cores import Cores, bind
from benchmarks.engine.model_folders import MEDIUM, write_architecture
from benchmarks.engine.weights import has_weights
from benchmarks.media.footage import make_footage
from benchmarks.pipeline.report import DEFINITION, print_results, print_versions, results_json, versions
from benchmarks.pipeline.workload import WARM_UP_CLIPS
from benchmarks.services import own_services
from flows.cli.context import prefect_ready
from reelabel_engine.environment import find_python
from tasks.database.schema import prepare_database
from tasks.model.identity import TINY_MODEL

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from rich.status import Status

    from benchmarks.pipeline.comparison import ModelResult

_SIDE_PX = 240


@dataclass(frozen=True, slots=True, kw_only=True)
class _Model:
    """A model to measure with.

    Attributes:
        make: Writes its folder below another one, unless it exists.
        warm_share: Share of the ceiling that a warm cache should reach.
        jobs_share: Share of the jobs, so that all models take about as long.
    """

    make: Callable[[Path], Path]
    warm_share: float
    jobs_share: float


def _make_medium(folder: Path) -> Path:
    # Not the folder of the benchmark `engine`, which has dummy weights.
    model = folder / "with-weights" / MEDIUM.name
    if not has_weights(model):
        write_architecture(MEDIUM, model.parent)
        command = [find_python(needs="transformers").path, "-P", "-m", "benchmarks.engine.weights", str(model)]
        subprocess.run(command, check=True)  # noqa: S603 - our own module
    return model


_MODELS = {
    "tiny": _Model(make=lambda _folder: TINY_MODEL, warm_share=0.85, jobs_share=1.0),
    "100m": _Model(make=_make_medium, warm_share=0.95, jobs_share=1 / 24),
}


def model_folder(name: str, folder: Path) -> Path:
    """Return the folder of a model, tiny or 100m, which is written below another one unless it exists.

    Raises:
        typer.BadParameter: The model is unknown.
    """
    if name not in _MODELS:
        raise typer.BadParameter(f"Unknown model {name!r}; choose {' or '.join(_MODELS)}.", param_hint="--model")
    return _MODELS[name].make(folder)


def run(model: str, folder: Path, *, jobs: int, questions: int, rounds: int, as_json: bool) -> int:
    """Compare pipelines; print a table for each model, or JSON.

    Args:
        model: tiny, 100m or both.
        folder: Folder that keeps clips and model folders.
        jobs: Jobs per pass with the tiny model.
        questions: Questions per video.
        rounds: Passes of each contender.
        as_json: Print JSON.

    Returns:
        Exit code: 1 where a target is missed, else 0.

    Raises:
        typer.BadParameter: The model is unknown.
    """
    if model not in {*_MODELS, "both"}:
        raise typer.BadParameter(f"Unknown model {model!r}; choose tiny, 100m or both.", param_hint="--model")
    cores = Cores.split()
    bind(os.getpid(), cores.host)
    with own_services() as settings, prefect_ready(settings), PROGRESS.status("") as status:
        from benchmarks.pipeline.comparison import Comparison  # noqa: PLC0415 - see prefect_ready

        prepare_database(settings.database)
        measured = []
        for name in _MODELS if model == "both" else (model,):
            _show(status, name, "making clips and model")
            count = max(1, round(jobs * _MODELS[name].jobs_share / questions))
            comparison = Comparison(
                settings=settings,
                cores=cores,
                clips=make_footage(folder, count=WARM_UP_CLIPS + count, width_px=_SIDE_PX, height_px=_SIDE_PX),
                questions=questions,
                rounds=rounds,
            )
            result = comparison.measure(
                name,
                _MODELS[name].make(folder),
                warm_share=_MODELS[name].warm_share,
                on_progress=partial(_show, status, name),
            )
            measured.append(result)
    if as_json:
        _print_json(measured, cores)
    else:
        _print(measured, cores)
    return 0 if all(target.is_met for each in measured for target in each.targets) else 1


def _show(status: Status, name: str, text: str) -> None:
    """Show progress: in place on a terminal, else line by line."""
    status.update(f"{name}: {text}")
    if not PROGRESS.is_terminal:
        PROGRESS.print(f"{name}: {text}", soft_wrap=True)


def _print(measured: Sequence[ModelResult], cores: Cores) -> None:
    for each in measured:
        rounds = len(each.results[0].timings)
        title = f"{each.name}: {each.jobs} jobs on {each.videos} videos, medians of {rounds} rounds"
        print_results(title, each.results, each.targets)
        OUT.print(f"Settings of the ceiling's engine: {each.ceiling_settings}.\n", soft_wrap=True)
    OUT.print(f"{DEFINITION} {cores}", soft_wrap=True)
    print_versions()


def _print_json(measured: Sequence[ModelResult], cores: Cores) -> None:
    report = {
        "definition": DEFINITION,
        "cores": {"engine": sorted(cores.engine), "host": sorted(cores.host)},
        "versions": versions(),
        "models": [
            {
                "model": each.name,
                "jobs": each.jobs,
                "videos": each.videos,
                "ceiling_settings": each.ceiling_settings,
                **results_json(each.results, each.targets),
            }
            for each in measured
        ],
    }
    print_json(report)
