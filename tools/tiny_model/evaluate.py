"""Measures a model on fresh clips, beside two controls that must behave.

Black clips must be answered no better than by chance; clips played backwards must turn the
direction round. A model that passes the first measure and fails a control looks at something else.
"""

from __future__ import annotations

from itertools import cycle, islice
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from rich.table import Table

from tasks.demo.clips import ENCODINGS, MANIFEST_NAME, clip_jobs, draw_clip, write_clip, write_manifest
from tasks.demo.shapes import OPPOSITES, QUESTIONS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

    # Manifest rows to the chosen texts, in the same order.
    Answerer = Callable[[list[dict[str, Any]]], list[str]]

EVALUATION_SEED = 20_000  # far from the training's seed and the demo's
FORWARDS, BACKWARDS, BLACK = "forwards", "backwards", "black"
TARGETS = {"colour": 0.98, "direction": 0.95, "shape": 0.90}
_CHANCE = (0.10, 0.40)  # four choices, few clips


def make_evaluation(
    folder: Path,
    *,
    seed: int = EVALUATION_SEED,
    clips: int = 200,
    uri_prefix: str | None = None,
) -> pl.DataFrame:
    """Write every clip three times (forwards, backwards, black) and a manifest of three jobs for each.

    The manifest's `subtask` says which of the three a job is about; `answer` is what can be seen,
    so backwards it is the opposite direction. Black clips keep the answers of their originals.

    Args:
        folder: Where the clips and `manifest.parquet` are written; made if missing.
        seed: Decides every pixel.
        clips: How many different ones.
        uri_prefix: What stands before a file's name in `video_uri`; None is the folder itself.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
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
    """Have every job answered and count.

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


def faults(scores: pl.DataFrame) -> list[str]:
    """Name every score that misses its target; empty when all is well."""
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
    """Lay out scores for a terminal: a line per variant, a column per task."""
    table = Table(title="Accuracy on fresh clips")
    table.add_column("clips")
    for task in QUESTIONS:
        table.add_column(task, justify="right")
    table.add_column("expected", style="dim")
    at_least = ", ".join(f"{target:.2f}" for target in TARGETS.values())
    expected = {FORWARDS: f"at least {at_least}", BACKWARDS: "the same, direction turned round", BLACK: "chance: 0.25"}
    for variant, remark in expected.items():
        measured = {task: accuracy for name, task, _, accuracy in scores.iter_rows() if name == variant}
        table.add_row(variant, *(f"{measured[task]:.3f}" for task in QUESTIONS), remark)
    return table
