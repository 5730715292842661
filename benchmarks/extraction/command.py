"""The benchmarks of extraction, and their options."""

from __future__ import annotations

from typing import Annotated

import typer

from benchmarks.bench import FOLDER, AsJson, Bench, ClipFolder, Lengths, Plot, Rounds, whole_numbers


def decode(
    lengths: Lengths = "30,600,3600",
    folder: ClipFolder = FOLDER,
    rounds: Rounds = 7,
    *,
    json: AsJson = False,
    plot: Plot = None,
) -> None:
    """Time decoding against other loaders, and against decoding the picked packets alone."""
    from benchmarks.extraction import report  # noqa: PLC0415

    report.decode(whole_numbers(lengths, "--lengths"), folder, rounds=rounds, as_json=json, plot=plot)


def fetch(
    lengths: Lengths = "30,600,3600",
    folder: ClipFolder = FOLDER,
    rounds: Rounds = 5,
    *,
    json: AsJson = False,
    plot: Plot = None,
) -> None:
    """Measure the bytes read from an S3 server per clip, and the time they take."""
    from benchmarks.extraction import report  # noqa: PLC0415

    report.fetch(whole_numbers(lengths, "--lengths"), folder, rounds=rounds, as_json=json, plot=plot)


def ranges(
    folder: ClipFolder = FOLDER,
    rounds: Rounds = 5,
    *,
    only: Annotated[str, typer.Option(help="Only cases whose names contain this, such as gop250 or 3600s.")] = "",
    json: AsJson = False,
) -> None:
    """Compare frames between keyframes read from an S3 server by ranges with those of a download.

    Exit with 1 where a target is missed.
    """
    from benchmarks.extraction import report  # noqa: PLC0415
    from benchmarks.extraction.ranges import cases  # noqa: PLC0415

    wanted = [case for case in cases() if only in case.name]
    if not wanted:
        names = ", ".join(case.name for case in cases())
        raise typer.BadParameter(f"No case's name contains {only!r}; there are {names}.", param_hint="--only")
    raise typer.Exit(report.ranges(wanted, folder, rounds=rounds, as_json=json))


def archive(
    folder: ClipFolder = FOLDER,
    megabytes: Annotated[int, typer.Option(min=1, max=4000, help="Size of the tar.")] = 1000,
    rounds: Rounds = 5,
    *,
    json: AsJson = False,
) -> None:
    """Measure what the keyframes of one clip in a large tar on an S3 server cost."""
    from benchmarks.extraction import report  # noqa: PLC0415

    report.archive(folder, megabytes=megabytes, rounds=rounds, as_json=json)


def survey(
    folder: ClipFolder = FOLDER,
    videos: Annotated[int, typer.Option(min=1, max=100_000, help="Videos on the store.")] = 1000,
    rows: Annotated[int, typer.Option(min=1, help="Rows of the manifest of which a sample is surveyed.")] = 1_000_000,
    sample: Annotated[int, typer.Option(min=1, help="Clips drawn from it.")] = 2000,
    *,
    json: AsJson = False,
) -> None:
    """Time surveys of a manifest whose videos are on an S3 server: of all videos, and of a sample."""
    from benchmarks.extraction import report  # noqa: PLC0415

    report.survey(folder, videos=videos, rows=rows, sample=sample, as_json=json)


def store(
    length: Annotated[int, typer.Option(min=1, max=3600, help="Length of the clips in seconds.")] = 60,
    folder: ClipFolder = FOLDER,
    rounds: Rounds = 7,
    *,
    json: AsJson = False,
) -> None:
    """Compare the formats of frame files: bytes, and milliseconds to and from an S3 server."""
    from benchmarks.extraction import report  # noqa: PLC0415

    report.store(length, folder, rounds=rounds, as_json=json)


def similar(
    threshold: Annotated[float, typer.Option(min=0.01, max=0.99, help="Drop frames more similar than this.")] = 0.95,
    folder: ClipFolder = FOLDER,
    *,
    json: AsJson = False,
) -> None:
    """Count the frames that drop_similar keeps of static and of moving scenes."""
    from benchmarks.extraction import report  # noqa: PLC0415

    report.similar(folder, threshold=threshold, as_json=json)


def hdr(folder: ClipFolder = FOLDER, rounds: Rounds = 7, *, json: AsJson = False) -> None:
    """Time the tone mapping of HDR keyframes in 1080p to SDR at the model's size."""
    from benchmarks.extraction import report  # noqa: PLC0415

    report.hdr(folder, rounds=rounds, as_json=json)


def start(folder: ClipFolder = FOLDER, rounds: Rounds = 7, *, json: AsJson = False) -> None:
    """Time the imports and the first frames of fresh processes, beside plain PyAV."""
    from benchmarks.extraction import report  # noqa: PLC0415

    report.start(folder, rounds=rounds, as_json=json)


def cache(
    entries: Annotated[str, typer.Option(help="Numbers of files, ascending, comma-separated.")] = "10000,100000",
    *,
    store: Annotated[
        bool, typer.Option("--store", help="Use the configured store, not a folder; filling S3 may take an hour.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Measure time and memory of `cache ls` and `cache gc` by the number of files."""
    from benchmarks.extraction import report  # noqa: PLC0415

    report.cache(whole_numbers(entries, "--entries"), on_store=store, as_json=json)


BENCHES = (
    Bench(decode, "decode --lengths 30,600 --plot decode.svg"),
    Bench(fetch, "fetch --lengths 30,600 --plot bytes.svg"),
    Bench(ranges, "ranges --rounds 3"),
    Bench(archive, "archive --megabytes 200 --rounds 3"),
    Bench(survey, "survey --videos 200"),
    Bench(store, "store --json"),
    Bench(similar, "similar --threshold 0.9"),
    Bench(hdr, "hdr --rounds 3"),
    Bench(start, "start --rounds 3"),
    Bench(cache, "cache --entries 1000,10000"),
)
