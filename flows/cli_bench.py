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


@bench_app.command("engine")
@example("reelabel bench engine --models tiny --rounds 5")
def bench_engine(
    models: Annotated[str, typer.Option(help="Any of tiny and 100m, with commas between.")] = "tiny,100m",
    folder: Annotated[Path, typer.Option("--folder", help="Where architectures are written.")] = _BENCH_CLIPS,
    requests: Annotated[
        int | None, typer.Option(min=1, help="Requests of a round; empty is some seconds' worth.")
    ] = None,
    rounds: Rounds = 3,
    *,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Measure the engine alone by its settings; the best is the ceiling of any pipeline."""
    from flows.commands.measure_engine import engine  # noqa: PLC0415

    engine([name.strip() for name in models.split(",")], folder, requests=requests, rounds=rounds, as_json=json)


@bench_app.command("questions")
@example("reelabel bench questions --frames 32")
def bench_questions(
    model: Annotated[str, typer.Option(help="One of tiny and 100m.")] = "tiny",
    frames: Annotated[int, typer.Option(min=1, max=512, help="Frames of each video.")] = 32,
    folder: Annotated[Path, typer.Option("--folder", help="Where architectures are written.")] = _BENCH_CLIPS,
    rounds: Rounds = 15,
    *,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Measure what 2, 4 and 8 questions on one video cost beside a single one."""
    from flows.commands.measure_engine import questions  # noqa: PLC0415

    questions(model, folder, frames=frames, rounds=rounds, as_json=json)


@bench_app.command("pipeline")
@example("reelabel bench pipeline --model tiny --jobs 60 --rounds 1")
def bench_pipeline(
    model: Annotated[str, typer.Option(help="tiny, 100m, or both.")] = "both",
    folder: ClipFolder = _BENCH_CLIPS,
    jobs: Annotated[
        int, typer.Option(min=4, max=10_000, help="Jobs of a pass with the tiny model; 100m has a twenty-fourth.")
    ] = 3600,
    questions: Annotated[int, typer.Option(min=1, max=3, help="Questions on each video.")] = 1,
    rounds: Annotated[int, typer.Option(min=1, max=100, help="How often each way is taken; medians are shown.")] = 2,
    *,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Measure the whole way from videos to answers beside the engine's ceiling and vLLM's own; exit 1 if it lags."""
    from flows.commands.measure_pipeline import pipeline  # noqa: PLC0415

    raise typer.Exit(pipeline(model, folder, jobs=jobs, questions=questions, rounds=rounds, as_json=json))


@bench_app.command("scale")
@example("reelabel bench scale --rows 100000,1000000 --plot scale.svg")
def bench_scale(
    rows: Annotated[
        str, typer.Option(help="Numbers of jobs, with commas between; ten million take 10 GB of disk.")
    ] = "100000,1000000",
    *,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    plot: Plot = None,
) -> None:
    """Measure planning, audit, backfills and writing by the number of jobs, on made-up rows without videos."""
    from flows.commands.measure_scale import scale  # noqa: PLC0415

    scale(_numbers(rows, "--rows"), as_json=json, plot=plot)


@bench_app.command("trade")
@example("reelabel bench trade --json")
def bench_trade(
    clips: Annotated[int, typer.Option(min=160, max=100_000, help="Clips; one question each.")] = 1_120,
    seed: Annotated[int, typer.Option(min=0, help="The same seed makes the same clips.")] = 40_000,
    *,
    keep: Annotated[str | None, typer.Option(help="Folder that keeps the clips for the next time.")] = None,
    model: Annotated[str | None, typer.Option(help="Model folder or hub name; else the demo's.")] = None,
    make: Annotated[str | None, typer.Option(help="Folder for clips and manifest; nothing is asked.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    plot: Plot = None,
) -> None:
    """Measure what keyframes cost and save, by the kind of question and the number of keyframes."""
    from flows.commands import measure_trade  # noqa: PLC0415

    if make:
        measure_trade.make(Path(make), clips=clips, seed=seed)
    else:
        measure_trade.trade(clips=clips, seed=seed, keep=keep, model=model, as_json=json, plot=plot)


def _lengths_s(text: str) -> tuple[int, ...]:
    return _numbers(text, "--lengths")


def _numbers(text: str, option: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) >= 1 for part in parts):
        raise typer.BadParameter(f"{text!r} is no list of whole numbers; write for example 30,600.", param_hint=option)
    return tuple(map(int, parts))
