"""The benchmark of search, and its options."""

from __future__ import annotations

from typing import Annotated

import typer

from benchmarks.bench import FOLDER, AsJson, Bench, ClipFolder, whole_numbers


def search(
    vectors: Annotated[
        str, typer.Option(help="Numbers of vectors, comma-separated; ten million of 768 take 30 GB of disk.")
    ] = "1000000",
    folder: ClipFolder = FOLDER,
    dimensions: Annotated[int, typer.Option(min=136, max=4096, help="Size of a vector.")] = 768,
    queries: Annotated[int, typer.Option(min=2, max=1000, help="Queries of each kind.")] = 100,
    *,
    json: AsJson = False,
) -> None:
    """Search synthetic embeddings: time, memory, and how many of the best frames are found.

    Exit with 1 where a target is missed.
    """
    from benchmarks.search.report import run  # noqa: PLC0415

    counts = whole_numbers(vectors, "--vectors")
    raise typer.Exit(run(folder, counts, dimensions=dimensions, queries=queries, as_json=json))


BENCHES = (Bench(search, "search --vectors 100000"),)
