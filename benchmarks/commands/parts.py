"""Benchmarks of single parts: extraction, the engine, scene changes and search."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - the type of an option
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from benchmarks.harness import progress, show
from benchmarks.options import FOLDER, AsJson, Folder, Model, Rounds, known_names, whole_numbers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.harness import Target


def extract(
    part: Annotated[
        Literal["decode", "fetch", "ranges", "torchcodec"],
        typer.Argument(
            help="decode: a file, compared with other loaders and a lower bound; fetch: keyframes from S3; ranges: "
            "frames between keyframes from S3; torchcodec: uniform frames by TorchCodec, in a separate environment."
        ),
    ],
    lengths: Annotated[
        str | None, typer.Option("--lengths", help="Clip lengths in seconds, comma-separated (not ranges).")
    ] = None,
    folder: Folder = FOLDER,
    rounds: Rounds = 5,
    *,
    only: Annotated[
        str, typer.Option(help="ranges: only cases whose names contain this, such as gop250 or 3600s.")
    ] = "",
    clips: Annotated[
        Path | None,
        typer.Option(exists=True, file_okay=False, help="torchcodec: a folder of videos to measure instead."),
    ] = None,
    keyframes: Annotated[
        bool, typer.Option("--keyframes", help="torchcodec: compare our keyframes with its approximate seek.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Measure the extraction of sixteen frames of a video: time and bytes, compared with other loaders.

    Exits with 1 if a target is missed, for ranges, and for torchcodec without --keyframes.
    """
    if part == "torchcodec":
        _torchcodec(lengths or "30,600", folder, rounds, clips, keyframes=keyframes, as_json=json)
    if part == "ranges":
        from benchmarks.extraction.remote import cases, ranges  # noqa: PLC0415

        wanted = [case for case in cases() if only in case.name]
        if not wanted:
            names = ", ".join(case.name for case in cases())
            raise typer.BadParameter(f"No case's name contains {only!r}; there are {names}.", param_hint="--only")
        with progress("Measuring; the first run generates the clips"):
            tables, targets = ranges(wanted, folder, rounds=rounds)
        raise typer.Exit(show(tables, targets=targets, as_json=json))
    from benchmarks.extraction import files, remote  # noqa: PLC0415

    measure = files.decode if part == "decode" else remote.fetch
    with progress("Measuring; the first run generates the clips"):
        tables = measure(whole_numbers(lengths or "30,600,3600", "--lengths"), folder, rounds=rounds)
    show(tables, as_json=json)


def _torchcodec(
    lengths: str,
    folder: Path,
    rounds: int,
    clips: Path | None,
    *,
    keyframes: bool,
    as_json: bool,
) -> None:
    from benchmarks.extraction.torchcodec import compare, compare_keyframes  # noqa: PLC0415
    from benchmarks.media.clips import bench_clips  # noqa: PLC0415
    from tasks.manifest.importers.videos import VIDEO_SUFFIXES, suffix_of  # noqa: PLC0415

    targets: Sequence[Target] = ()
    with progress("Installing TorchCodec, and measuring; the first time takes minutes"):
        if clips:
            wanted = sorted(path for path in clips.iterdir() if suffix_of(path.name) in VIDEO_SUFFIXES)
            if not wanted:
                raise typer.BadParameter(f"There are no videos in {clips}.", param_hint="--clips")
        else:
            wanted = [clip.make(folder) for clip in bench_clips(whole_numbers(lengths, "--lengths"))]
        if keyframes:
            tables = compare_keyframes(wanted, folder, rounds=rounds)
        else:
            tables, targets = compare(wanted, folder, rounds=rounds)
    raise typer.Exit(show(tables, targets=targets, as_json=as_json))


def engine(
    part: Annotated[
        Literal["questions", "words"],
        typer.Argument(
            help="questions: 1, 2, 4 and 8 about one video; words: 64-token answers, compared with LLM.generate."
        ),
    ] = "questions",
    model: Model = "tiny",
    folder: Folder = FOLDER,
    requests: Annotated[int, typer.Option(min=1, help="words: answers per round.")] = 64,
    rounds: Annotated[
        int | None, typer.Option(min=1, max=1000, help="Measured repetitions; defaults to 15, or 5 for words.")
    ] = None,
    *,
    json: AsJson = False,
) -> None:
    """Measure the engine alone; exits with 1 if a target is missed."""
    from benchmarks.engine import measure, words  # noqa: PLC0415

    targets: list[Target] = []
    with progress("Loading the model and answering"):
        if part == "words":
            tables, targets = words.compare(model, folder, requests=requests, rounds=rounds or 5)
        else:
            tables = measure.questions(model, folder, rounds=rounds or 15)
    raise typer.Exit(show(tables, targets=targets, as_json=json))


def scenes(
    folder: Folder = FOLDER,
    rounds: Rounds = 1,
    *,
    methods: Annotated[
        str, typer.Option(help="Methods to compare, comma-separated; PySceneDetect is always included.")
    ] = "auto,ema,published",
    clips: Annotated[
        str, typer.Option(help="Kinds of clips, comma-separated: three real ones, and forty generated ones.")
    ] = "real,made",
    json: AsJson = False,
) -> None:
    """Compare methods that find scene changes, on generated clips and on real ones, which this command downloads.

    Exits with 1 if a target is missed.
    """
    from benchmarks.scenes.measure import GROUPS, OURS, run  # noqa: PLC0415

    wanted = known_names(methods, OURS, "--methods")
    groups = known_names(clips, GROUPS, "--clips")
    tables, targets = run(folder, wanted, rounds=rounds, groups=groups)
    raise typer.Exit(show(tables, targets=targets, as_json=json))


def search(
    vectors: Annotated[
        str, typer.Option(help="Numbers of vectors, comma-separated; ten million of 768 take 30 GB of disk.")
    ] = "1000000",
    folder: Folder = FOLDER,
    dimensions: Annotated[int, typer.Option(min=136, max=4096, help="Size of a vector.")] = 768,
    queries: Annotated[int, typer.Option(min=2, max=1000, help="Queries of each kind.")] = 100,
    *,
    json: AsJson = False,
) -> None:
    """Search synthetic embeddings: time, memory, and how many of the best frames are found.

    Exits with 1 if a target is missed.
    """
    from benchmarks.search import run  # noqa: PLC0415

    tables, targets = run(folder, whole_numbers(vectors, "--vectors"), dimensions=dimensions, queries=queries)
    raise typer.Exit(show(tables, targets=targets, as_json=json))
