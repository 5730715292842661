"""The benchmarks of the engine, and their options."""

from __future__ import annotations

from typing import Annotated

import typer

from benchmarks.bench import FOLDER, AsJson, Bench, ModelFolder, Rounds


def engine(
    models: Annotated[str, typer.Option(help="Any of tiny and 100m, comma-separated.")] = "tiny,100m",
    folder: ModelFolder = FOLDER,
    requests: Annotated[
        int | None, typer.Option(min=1, help="Requests per round; by default a few seconds' worth.")
    ] = None,
    rounds: Rounds = 3,
    *,
    json: AsJson = False,
) -> None:
    """Sweep the settings of the engine alone; the fastest is the ceiling of any pipeline."""
    from benchmarks.engine import report  # noqa: PLC0415

    names = [name.strip() for name in models.split(",")]
    report.engine(names, folder, requests=requests, rounds=rounds, as_json=json)


def questions(
    model: Annotated[str, typer.Option(help="tiny or 100m.")] = "tiny",
    frames: Annotated[int, typer.Option(min=1, max=512, help="Frames per video.")] = 32,
    folder: ModelFolder = FOLDER,
    rounds: Rounds = 15,
    *,
    json: AsJson = False,
) -> None:
    """Compare the cost of 1, 2, 4 and 8 questions about one video."""
    from benchmarks.engine import report  # noqa: PLC0415

    report.questions(model, folder, frames=frames, rounds=rounds, as_json=json)


def choice_mass(
    model: Annotated[str, typer.Option(help="tiny or 100m.")] = "tiny",
    folder: ModelFolder = FOLDER,
    requests: Annotated[
        int | None, typer.Option(min=1, help="Requests per round; by default a few seconds' worth.")
    ] = None,
    rounds: Rounds = 15,
    *,
    json: AsJson = False,
) -> None:
    """Compare answers with the probability of all choices together, and without it."""
    from benchmarks.engine import report  # noqa: PLC0415

    report.choice_mass(model, folder, requests=requests, rounds=rounds, as_json=json)


BENCHES = (
    Bench(engine, "engine --models tiny --rounds 5"),
    Bench(questions, "questions --frames 32"),
    Bench(choice_mass, "choice-mass --rounds 15"),
)
