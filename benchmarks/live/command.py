"""The benchmark of live sessions, and its options."""

from __future__ import annotations

from typing import Annotated

import typer

from benchmarks.bench import FOLDER, AsJson, Bench, ModelFolder, Rounds, whole_numbers


def live(
    model: Annotated[str, typer.Option(help="tiny or 100m.")] = "100m",
    frames: Annotated[str, typer.Option(help="Frames of history, comma-separated, even numbers.")] = "8,32,128,512",
    folder: ModelFolder = FOLDER,
    rounds: Rounds = 5,
    minutes: Annotated[float, typer.Option(min=0.5, max=600, help="Length of the stream that is replayed.")] = 10,
    labels: Annotated[
        int, typer.Option(min=0, max=100_000, help="Labels to compare with classify's, with the tiny model only.")
    ] = 300,
    *,
    parts: Annotated[
        bool, typer.Option("--parts", help="Also measure where the time of a question goes, by clocks in the engine.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Measure live sessions: the time to an answer by history, a long stream, and agreement with classify."""
    from benchmarks.live import report  # noqa: PLC0415

    lengths = whole_numbers(frames, "--frames")
    if any(length % 2 for length in lengths):
        raise typer.BadParameter(f"{frames!r} has an odd number, but frames are read in pairs.", param_hint="--frames")
    report.live(
        model,
        folder,
        frames=lengths,
        rounds=rounds,
        minutes=minutes,
        labels=labels,
        with_parts=parts,
        as_json=json,
    )


BENCHES = (Bench(live, "live --model tiny --frames 8,32 --minutes 1 --labels 30"),)
