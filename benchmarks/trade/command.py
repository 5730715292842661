"""The benchmark of what keyframes cost, and its options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from benchmarks.bench import AsJson, Bench, Plot
from tasks.model.identity import TINY_MODEL


def trade(  # noqa: PLR0913 - a command's options
    clips: Annotated[int, typer.Option(min=160, max=100_000, help="Clips, one question each.")] = 1_120,
    seed: Annotated[int, typer.Option(min=0, help="The same seed makes the same clips.")] = 40_000,
    *,
    keep: Annotated[str | None, typer.Option(help="Folder that keeps the clips for the next time.")] = None,
    model: Annotated[str, typer.Option(help="Model folder or hub name.", show_default="the demo's")] = str(TINY_MODEL),
    make: Annotated[str | None, typer.Option(help="Only write clips and manifest to this folder.")] = None,
    pruning: Annotated[
        bool,
        typer.Option("--pruning", help="Measure what video_pruning_rate does to tokens, speed and answers instead."),
    ] = False,
    brief: Annotated[
        int | None,
        typer.Option(
            min=16,
            max=100_000,
            help="Instead, ask about this many clips of a minute, three seconds of which answer the question, with the "
            "sampler relevant and others.",
        ),
    ] = None,
    json: AsJson = False,
    plot: Plot = None,
) -> None:
    """Measure what keyframes cost in accuracy and save in work, by question and number of keyframes."""
    from benchmarks.trade import measure  # noqa: PLC0415

    if make:
        measure.write_clips(Path(make), clips=clips, seed=seed)
    elif brief:
        measure.run_relevance(clips=brief, seed=seed, keep_in=keep, model=model, as_json=json)
    elif pruning:
        measure.run_pruning(clips=clips, seed=seed, keep_in=keep, model=model, as_json=json)
    else:
        measure.run(clips=clips, seed=seed, keep_in=keep, model=model, as_json=json, plot=plot)


BENCHES = (Bench(trade, "trade --json"),)
