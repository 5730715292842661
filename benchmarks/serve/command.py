"""The benchmark of `reelabel serve`, and its options."""

from __future__ import annotations

from typing import Annotated

import typer

from benchmarks.bench import FOLDER, AsJson, Bench, ClipFolder, whole_numbers


def serve(
    concurrency: Annotated[
        str, typer.Option(help="Numbers of clients that ask at once, comma-separated.")
    ] = "1,2,4,8,16,32,64",
    requests: Annotated[
        int, typer.Option(min=8, max=10_000, help="Requests per number of clients; the first half is thrown away.")
    ] = 400,
    model: Annotated[str, typer.Option(help="tiny or 100m.")] = "tiny",
    folder: ClipFolder = FOLDER,
    *,
    warm: Annotated[bool, typer.Option("--warm", help="Let the service find the flow's frames in the cache.")] = False,
    json: AsJson = False,
) -> None:
    """Ask `reelabel serve` single questions, and compare with the flow on the same videos.

    Exit with 1 where a target is missed.
    """
    from benchmarks.serve.report import serve as run  # noqa: PLC0415

    counts = [int(count) for count in whole_numbers(concurrency, "--concurrency")]
    raise typer.Exit(run(counts, folder, requests=requests, model=model, warm=warm, as_json=json))


BENCHES = (Bench(serve, "serve --concurrency 1,16 --requests 60"),)
