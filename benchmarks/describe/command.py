"""The benchmarks of descriptions, and their options."""

from __future__ import annotations

from typing import Annotated

import typer

from benchmarks.bench import FOLDER, AsJson, Bench, ClipFolder, ModelFolder, Rounds, whole_numbers

_MOST_HOURS = 24


def describe(
    videos: Annotated[int, typer.Option(min=2, max=10_000, help="Clips of 30 to 45 s.")] = 24,
    folder: ClipFolder = FOLDER,
    rounds: Rounds = 3,
    *,
    json: AsJson = False,
) -> None:
    """Compare the flow describe, cold and with cached frames, with its encoder alone and its extraction alone.

    Exit with 1 where a target is missed.
    """
    from benchmarks.describe import report  # noqa: PLC0415

    raise typer.Exit(report.encoder(videos, folder, rounds=rounds, as_json=json))


def film(
    hours: Annotated[str, typer.Option(help="Lengths of films in hours, comma-separated.")] = "0.25,3",
    folder: ClipFolder = FOLDER,
    *,
    ts: Annotated[
        bool, typer.Option("--ts", help="As MPEG-TS, which is decoded from its beginning, instead of as MP4.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Describe long films of small pictures, and print the most memory that each process takes."""
    from benchmarks.describe import report  # noqa: PLC0415

    lengths = [_film_hours(each) for each in hours.split(",")]
    report.film(lengths, folder, as_ts=ts, as_json=json)


def retag(
    videos: Annotated[
        str, typer.Option(help="Numbers of videos, comma-separated; a hundred thousand take minutes to store.")
    ] = "1000,10000",
    seconds: Annotated[float, typer.Option(min=1, help="Length of a video; a chunk of 10 s has 16 frames.")] = 10.0,
    folder: ModelFolder = FOLDER,
    *,
    shards_only: Annotated[
        bool,
        typer.Option(
            "--shards-only", help="Store the shards' vector files that an earlier run leaves, instead of that run."
        ),
    ] = False,
    json: AsJson = False,
) -> None:
    """Describe videos whose embeddings are stored, by one bank and then by another, with real services."""
    from benchmarks.describe import report  # noqa: PLC0415

    counts = whole_numbers(videos, "--videos")
    report.retag(counts, folder, seconds=seconds, shards_only=shards_only, as_json=json)


def _film_hours(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= _MOST_HOURS:
        raise typer.BadParameter(f"{text!r} is not a number above 0, such as 0.5.", param_hint="--hours")
    return number


BENCHES = (
    Bench(describe, "describe --videos 8 --rounds 1"),
    Bench(film, "film --hours 0.5,3"),
    Bench(retag, "retag --videos 1000"),
)
