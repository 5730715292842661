"""The command line's `bench`: what is measured and tried on demand."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.commands.example import example

_BENCH_CLIPS = Path(".reelabel/bench")
bench_app = typer.Typer(help="Measure and try the extraction.", no_args_is_help=True)


@bench_app.command("fuzz")
@example("reelabel bench fuzz --count 5000 --seed 7")
def bench_fuzz(
    count: Annotated[int, typer.Option(min=1, max=1_000_000, help="Damaged files to make.")] = 300,
    seed: Annotated[int, typer.Option(min=0, help="The same seed makes the same files.")] = 0,
    *,
    only: Annotated[str, typer.Option(help="Damage such files alone, as `avi` or `avi/mpeg4`.")] = "",
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    keep: Annotated[str | None, typer.Option(help="Folder for the files that went wrong.")] = None,
) -> None:
    """Damage files of every container, and compare what is extracted with a linear decode; exit 1 where it differs."""
    from flows.commands.bench import fuzz  # noqa: PLC0415

    raise typer.Exit(fuzz(count, seed=seed, only=only, as_json=json, keep=keep))


Lengths = Annotated[str, typer.Option("--lengths", help="Lengths of clips in seconds, with commas between.")]
ClipFolder = Annotated[Path, typer.Option("--folder", help="Where clips are made once; an hour takes 2 GB.")]
Rounds = Annotated[int, typer.Option(min=1, max=1000, help="How often each way is taken; medians are shown.")]
Plot = Annotated[str | None, typer.Option(help="SVG file to draw.")]


@bench_app.command("decode")
@example("reelabel bench decode --lengths 30,600 --plot decode.svg")
def bench_decode(
    lengths: Lengths = "30,600,3600",
    folder: ClipFolder = _BENCH_CLIPS,
    rounds: Rounds = 7,
    *,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    plot: Plot = None,
) -> None:
    """Measure decoding beside other loaders, and beside decoding the picked packets alone."""
    from flows.commands.measure import decode  # noqa: PLC0415

    decode(_lengths_s(lengths), folder, rounds=rounds, as_json=json, plot=plot)


@bench_app.command("fetch")
@example("reelabel bench fetch --lengths 30,600 --plot bytes.svg")
def bench_fetch(
    lengths: Lengths = "30,600,3600",
    folder: ClipFolder = _BENCH_CLIPS,
    rounds: Rounds = 5,
    *,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    plot: Plot = None,
) -> None:
    """Measure what is read of clips on the S3 server, and how long that takes."""
    from flows.commands.measure import fetch  # noqa: PLC0415

    fetch(_lengths_s(lengths), folder, rounds=rounds, as_json=json, plot=plot)


@bench_app.command("similar")
@example("reelabel bench similar --threshold 0.9")
def bench_similar(
    threshold: Annotated[float, typer.Option(min=0.01, max=0.99, help="Similarity above which frames go.")] = 0.95,
    folder: Annotated[Path, typer.Option("--folder", help="Where scenes are filmed once.")] = _BENCH_CLIPS,
    *,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Count the frames that drop_similar leaves of static scenes, and of moving ones."""
    from flows.commands.measure_frames import similar  # noqa: PLC0415

    similar(folder, threshold=threshold, as_json=json)


@bench_app.command("cache")
@example("reelabel bench cache --entries 1000,10000")
def bench_cache(
    entries: Annotated[str, typer.Option(help="Numbers of files, ascending, with commas between.")] = "10000,100000",
    *,
    store: Annotated[
        bool, typer.Option("--store", help="On the store that is set, not in a folder; filling S3 may take an hour.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Measure time and memory of cache ls and cache gc by the number of files."""
    from flows.commands.measure_frames import cache  # noqa: PLC0415

    cache(_numbers(entries, "--entries"), on_store=store, as_json=json)


@bench_app.command("store")
@example("reelabel bench store --json")
def bench_store(
    length: Annotated[int, typer.Option(min=1, max=3600, help="Length of the clips in seconds.")] = 60,
    folder: ClipFolder = _BENCH_CLIPS,
    rounds: Rounds = 7,
    *,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Measure bytes and milliseconds of storing frames, on the S3 server and off it."""
    from flows.commands.measure import store  # noqa: PLC0415

    store(length, folder, rounds=rounds, as_json=json)


def _lengths_s(text: str) -> tuple[int, ...]:
    return _numbers(text, "--lengths")


def _numbers(text: str, option: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) >= 1 for part in parts):
        raise typer.BadParameter(f"{text!r} is no list of whole numbers; write for example 30,600.", param_hint=option)
    return tuple(map(int, parts))
