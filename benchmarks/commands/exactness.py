"""Benchmarks of what is right: accuracy with fewer frames, and frames compared with a linear decode."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - the type of an option
from typing import Annotated

import typer

from benchmarks.harness import show
from benchmarks.options import FOLDER, AsJson, Folder


def trade(
    clips: Annotated[int, typer.Option(min=160, max=100_000, help="Clips, one question each.")] = 1_120,
    seed: Annotated[int, typer.Option(min=0, help="The same seed generates the same clips.")] = 40_000,
    folder: Folder = FOLDER,
    *,
    brief: Annotated[
        int | None,
        typer.Option(
            min=12,
            max=100_000,
            help="Instead, compare relevant with other samplers on this many one-minute clips, three seconds of which "
            "answer the question.",
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Measure the accuracy that keyframes lose and the work that they save, by question and number of keyframes."""
    from benchmarks.trade import measure  # noqa: PLC0415

    kept = folder / "trade"
    tables = measure.run_relevance(kept, clips=brief, seed=seed) if brief else measure.run(kept, clips=clips, seed=seed)
    show(tables, as_json=json)


def conformance(
    *,
    only: Annotated[str, typer.Option(help="Check only files of this kind, such as avi or avi/mpeg4.")] = "",
    write: Annotated[str | None, typer.Option(help="Also write the document to this file.")] = None,
    against_vllm: Annotated[
        bool, typer.Option("--against-vllm", help="Compare samplers with vLLM's own loaders instead, on files.")
    ] = False,
    clips: Annotated[
        Path | None, typer.Option(help="With --against-vllm: a folder of videos to compare instead of generated ones.")
    ] = None,
) -> None:
    """Compare the frames of every container, codec and structure with a linear decode.

    Exits with 1 if a file is not exact, or differs from vLLM's selection for no known reason.
    """
    from benchmarks.exactness import against_vllm as loaders  # noqa: PLC0415
    from benchmarks.exactness import conformance as matrix  # noqa: PLC0415

    if against_vllm and (only or write):
        raise typer.BadParameter(
            "It compares its own files; leave out --only and --write.", param_hint="--against-vllm"
        )
    if clips and not against_vllm:
        raise typer.BadParameter("It needs --against-vllm.", param_hint="--clips")
    code = loaders.agreement_with_vllm(clips) if against_vllm else matrix.conformance(only=only, write=write)
    raise typer.Exit(code)


def fuzz(
    count: Annotated[int, typer.Option(min=1, max=1_000_000, help="Number of damaged files to generate.")] = 300,
    seed: Annotated[int, typer.Option(min=0, help="The same seed generates the same files.")] = 0,
    *,
    only: Annotated[str, typer.Option(help="Damage only files of this kind, such as avi or avi/mpeg4.")] = "",
    json: AsJson = False,
    keep: Annotated[str | None, typer.Option(help="Folder for files with wrong frames.")] = None,
) -> None:
    """Damage files of every container and compare extracted frames with a linear decode.

    Exits with 1 if frames differ.
    """
    from benchmarks.exactness.fuzz import fuzz as run  # noqa: PLC0415

    raise typer.Exit(run(count, seed=seed, only=only, as_json=json, keep=keep))
