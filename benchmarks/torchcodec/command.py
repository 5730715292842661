"""The benchmark beside TorchCodec, and its options."""

from __future__ import annotations

from typing import Annotated

import typer

from benchmarks.bench import FOLDER, AsJson, Bench, ClipFolder, Lengths, Rounds, whole_numbers


def torchcodec(
    lengths: Lengths = "30,600",
    folder: ClipFolder = FOLDER,
    rounds: Rounds = 5,
    *,
    at_model_size: Annotated[
        bool, typer.Option("--at-model-size", help="Let both scale frames to the model's size.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Time uniform sampling beside TorchCodec at its best settings, in an environment that this command makes.

    Exit with 1 where ours is less than 1.5 times as fast, or the frames are not those of the same times.
    """
    from benchmarks.torchcodec.report import compare  # noqa: PLC0415

    seconds = whole_numbers(lengths, "--lengths")
    raise typer.Exit(compare(seconds, folder, rounds=rounds, at_model_size=at_model_size, as_json=json))


BENCHES = (Bench(torchcodec, "torchcodec --lengths 30 --rounds 3"),)
