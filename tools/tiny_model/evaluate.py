"""Measures a model on fresh clips, with two controls: `python -m tools.tiny_model.evaluate`.

Black clips must be answered no better than by chance, and clips played backwards must reverse the direction. A model
with a high accuracy that fails a control uses something other than the video. The clips are classified by a run, as
in `reelabel demo`.
"""

from __future__ import annotations

from itertools import cycle, islice
from typing import TYPE_CHECKING, Annotated

import numpy as np
import polars as pl
import typer
from rich.table import Table

from flows.cli.command_group import ReelabelGroup
from flows.cli.console import OUT, print_line
from flows.cli.demo import classify_clips
from infra.database.connect import connected
from tasks.database.scope import Scope
from tasks.demo.clips import ENCODINGS, MANIFEST_NAME, clip_jobs, draw_clip, write_clip, write_manifest
from tasks.demo.shapes import OPPOSITES, QUESTIONS
from tasks.results.read import read_results
from tasks.results.runs import find_run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

    from infra.settings import Settings

    # Maps manifest rows to the chosen texts, in the same order.
    Answerer = Callable[[list[dict[str, Any]]], list[str]]

EVALUATION_SEED = 20_000  # differs from the seeds of training and demo
FORWARDS, BACKWARDS, BLACK = "forwards", "backwards", "black"
TARGETS = {"colour": 0.98, "direction": 0.95, "shape": 0.90}
_CHANCE = (0.10, 0.40)  # four choices, few clips
_DATASET = "measure"

app = typer.Typer(cls=ReelabelGroup, add_completion=False, pretty_exceptions_enable=False)


def make_evaluation(folder: Path, *, clips: int = 200, uri_prefix: str | None = None) -> pl.DataFrame:
    """Write every clip three times (forwards, backwards, black) and a manifest of three jobs for each.

    The manifest's `subtask` is the variant; `answer` is what can be seen, so that backwards it is the opposite
    direction. Black clips keep the answers of their originals.
    `uri_prefix` is that of the file names in `video_uri`; None is the folder itself.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(EVALUATION_SEED)
    prefix = (uri_prefix or str(folder.resolve())).rstrip("/")
    rows: list[dict[str, object]] = []
    for index, encoding in enumerate(islice(cycle(ENCODINGS), clips)):
        shape, frames = draw_clip(rng)
        truths = {task: shape.truth(task) for task in QUESTIONS}
        flipped = truths | {"direction": OPPOSITES[shape.direction]}
        for variant, pixels, seen in (
            (FORWARDS, frames, truths),
            (BACKWARDS, frames[::-1], flipped),
            (BLACK, np.zeros_like(frames), truths),
        ):
            name = f"{variant}-{index:04d}.{encoding.container}"
            write_clip(folder / name, np.ascontiguousarray(pixels), encoding)
            rows += clip_jobs(f"{prefix}/{name}", seen, subtask=variant)
    return write_manifest(folder / MANIFEST_NAME, rows)


def evaluate(manifest: pl.DataFrame, answer: Answerer) -> pl.DataFrame:
    """Answer every job and score the answers.

    Returns:
        One row per variant and task: `subtask`, `task`, `jobs`, `accuracy` in [0, 1].
    """
    labels = answer(manifest.to_dicts())
    right = pl.Series("right", labels, dtype=pl.String) == manifest["answer"]
    return (
        manifest.with_columns(right=right)
        .group_by("subtask", "task", maintain_order=True)
        .agg(jobs=pl.len(), accuracy=pl.col("right").mean())
    )


def missed_targets(scores: pl.DataFrame) -> list[str]:
    """Describe every score that misses its target."""
    low, high = _CHANCE
    found = []
    for variant, task, _, accuracy in scores.iter_rows():
        if variant == BLACK:
            if not low <= accuracy <= high:
                found.append(f"{task} on black clips is {accuracy:.3f}, not chance")
        elif accuracy < TARGETS[task]:
            found.append(f"{task} {variant} is {accuracy:.3f}, below {TARGETS[task]:.2f}")
    return found


def accuracy_table(scores: pl.DataFrame) -> Table:
    """Tabulate scores: a row per variant, a column per task."""
    table = Table(title="Accuracy on fresh clips")
    table.add_column("clips")
    for task in QUESTIONS:
        table.add_column(task, justify="right")
    table.add_column("expected", style="dim")
    at_least = ", ".join(f"{target:.2f}" for target in TARGETS.values())
    expected = {
        FORWARDS: f"at least {at_least}",
        BACKWARDS: "the same, direction reversed",
        BLACK: "chance: 0.25",
    }
    for variant, remark in expected.items():
        measured = {task: accuracy for name, task, _, accuracy in scores.iter_rows() if name == variant}
        table.add_row(variant, *(f"{measured[task]:.3f}" for task in QUESTIONS), remark)
    return table


@app.callback(invoke_without_command=True)
def main(
    model: Annotated[str | None, typer.Option(help="Model folder or hub name; by default the demo's.")] = None,
    *,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the services running afterwards.")] = False,
) -> None:
    """Measure accuracy on 200 fresh clips, forwards, backwards and black; exit with 1 if a score misses its target."""
    jobs: list[pl.DataFrame] = []

    def make(folder: Path, uri_prefix: str) -> pl.DataFrame:
        jobs.append(make_evaluation(folder, uri_prefix=uri_prefix))
        return jobs[0]

    code = classify_clips(
        make, dataset=_DATASET, model=model, keep=keep, then=lambda settings: _print_accuracy(settings, jobs[0])
    )
    raise typer.Exit(code)


def _print_accuracy(settings: Settings, jobs: pl.DataFrame) -> int:
    """Print the scores of the last run; return 1 if one misses its target."""
    with connected(settings.database) as engine:
        labels = read_results(engine, Scope.of(find_run(engine, "last")))
    label_of = dict(labels.select("job_id", "label").iter_rows())
    scores = evaluate(jobs, lambda rows: [label_of.get(row["job_id"], "") for row in rows])
    OUT.print(accuracy_table(scores))
    missed = missed_targets(scores)
    for line in missed:
        print_line((line, "red"))
    return 1 if missed else 0


if __name__ == "__main__":
    app()
