"""`reelabel bench pipeline`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from benchmarks.architectures import MEDIUM, write_architecture
from benchmarks.media.footage import make_footage
from benchmarks.pipeline.cores import Cores, bind
from benchmarks.pipeline.table import DEFINITION, facts, rows_table, verdict_lines, versions
from benchmarks.pipeline.verdict import CEILING
from benchmarks.pipeline.weights import has_weights
from benchmarks.pipeline.workload import WARM_UP_CLIPS
from flows.commands.scheduler import prefect_ready
from infra.embedded import ServiceName, running
from infra.settings import Settings, load_settings
from tasks.model.identity import TINY_MODEL
from tasks.results.schema import prepare_database

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.status import Status

    from flows.ways import Measured

_CONSOLE = Console()
_PROGRESS = Console(stderr=True)
_SIDE_PX = 240
_SERVICES = frozenset({ServiceName.POSTGRES, ServiceName.S3, ServiceName.PREFECT})


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A model that is measured.

    Attributes:
        make: Makes its folder below another, unless it is there.
        warm_share: Of the ceiling, what a warm cache should reach.
        jobs_share: Of the jobs, so that both take about as long.
    """

    make: Callable[[Path], Path]
    warm_share: float
    jobs_share: float


def _medium(folder: Path) -> Path:
    # Apart from the folder of `bench engine`, whose weights are made up when they are loaded.
    model = folder / "with-weights" / MEDIUM.name
    if not has_weights(model):
        write_architecture(MEDIUM, model.parent)
        # Elsewhere: this process starts others by forking, and must not have torch's threads.
        subprocess.run([sys.executable, "-P", "-m", "benchmarks.pipeline.weights", str(model)], check=True)  # noqa: S603 - our own module
    return model


CANDIDATES = {
    "tiny": Candidate(make=lambda _folder: TINY_MODEL, warm_share=0.85, jobs_share=1.0),
    "100m": Candidate(make=_medium, warm_share=0.95, jobs_share=1 / 24),
}


def pipeline(model: str, folder: Path, *, jobs: int, questions: int, rounds: int, as_json: bool) -> int:
    """Measure, print a table for each model, or JSON; 1 where something is not reached.

    Args:
        model: One of `CANDIDATES`, or both.
        folder: Where clips and model folders are made once.
        jobs: With the tiny model, in each pass.
        questions: On each video.
        rounds: How often each way is taken.
        as_json: Print JSON.

    Raises:
        typer.BadParameter: There is no such model.
    """
    if model not in {*CANDIDATES, "both"}:
        raise typer.BadParameter(f"{model!r} is not measured; give tiny, 100m or both.", param_hint="--model")
    cores = Cores.split()
    bind(os.getpid(), cores.host)
    with _own_services() as settings, prefect_ready(settings), _PROGRESS.status("") as status:
        from flows.ways import Bench  # noqa: PLC0415 - see prefect_ready

        prepare_database(settings.database)
        measured = []
        for name in CANDIDATES if model == "both" else (model,):
            _say(status, name, "making clips and model")
            candidate = CANDIDATES[name]
            count = max(1, round(jobs * candidate.jobs_share / questions))
            bench = Bench(
                settings=settings,
                cores=cores,
                clips=make_footage(folder, count=WARM_UP_CLIPS + count, width_px=_SIDE_PX, height_px=_SIDE_PX),
                questions=questions,
                rounds=rounds,
            )
            measured.append(
                bench.measure(
                    name,
                    candidate.make(folder),
                    warm_share=candidate.warm_share,
                    say=partial(_say, status, name),
                )
            )
    if as_json:
        _print_json(measured, cores)
    else:
        _print(measured, cores)
    return 0 if all(verdict.is_reached for each in measured for verdict in each.verdicts) else 1


def _say(status: Status, name: str, text: str) -> None:
    """Show what is going on; where nothing can be overwritten, in lines."""
    status.update(f"{name}: {text}")
    if not _PROGRESS.is_terminal:
        _PROGRESS.print(f"{name}: {text}", soft_wrap=True)


@contextmanager
def _own_services() -> Iterator[Settings]:
    """Run services of the benchmark's own, on the host's cores: none that others use, and none of the user's data."""
    user = load_settings()
    ours = {name: type(getattr(user, name))() for name in ("database", "store", "prefect")}
    with TemporaryDirectory(prefix="reelabel-") as home:
        settings = user.model_copy(update=ours | {"home": Path(home)})
        with _PROGRESS.status("Starting services"), running(settings, wanted=_SERVICES) as started:
            yield started


def _print(measured: Sequence[Measured], cores: Cores) -> None:
    for each in measured:
        ceiling = next(row.jobs_per_s for row in each.rows if row.way == CEILING)
        title = f"{each.name}: {each.jobs} jobs on {each.videos} videos, medians of {len(each.rows[0].timings)} rounds"
        _CONSOLE.print(rows_table(title, each.rows, ceiling=ceiling))
        for line in verdict_lines(each.verdicts):
            _CONSOLE.print(line, soft_wrap=True, highlight=False)
        _CONSOLE.print(f"The ceiling is the engine's with these settings: {each.ceiling_settings}.\n", soft_wrap=True)
    _CONSOLE.print(f"{DEFINITION} {cores}", soft_wrap=True)
    _CONSOLE.print(", ".join(f"{name} {number}" for name, number in versions().items()), soft_wrap=True)


def _print_json(measured: Sequence[Measured], cores: Cores) -> None:
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
                **facts(each.rows, each.verdicts),
            }
            for each in measured
        ],
    }
    print(json.dumps(report, indent=2))  # noqa: T201 - for programs, not for a terminal's width
