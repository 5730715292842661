"""The benchmarks of exactness, and their options."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - defines a command's options
from typing import Annotated

import typer

from benchmarks.bench import AsJson, Bench


def fuzz(
    count: Annotated[int, typer.Option(min=1, max=1_000_000, help="Damaged files to make.")] = 300,
    seed: Annotated[int, typer.Option(min=0, help="The same seed makes the same files.")] = 0,
    *,
    only: Annotated[str, typer.Option(help="Damage only files of this kind, such as avi or avi/mpeg4.")] = "",
    json: AsJson = False,
    keep: Annotated[str | None, typer.Option(help="Folder for the files with a fault.")] = None,
) -> None:
    """Damage files of every container and compare extracted frames with a linear decode.

    Exit with 1 where frames differ.
    """
    from benchmarks.exactness.report import fuzz as run  # noqa: PLC0415

    raise typer.Exit(run(count, seed=seed, only=only, as_json=json, keep=keep))


def conformance(
    *,
    only: Annotated[str, typer.Option(help="Check only files of this kind, such as avi or avi/mpeg4.")] = "",
    write: Annotated[str | None, typer.Option(help="Also write the document to this file.")] = None,
    against_vllm: Annotated[
        bool, typer.Option("--against-vllm", help="Compare samplers with vLLM's own loaders instead, on files.")
    ] = False,
    clips: Annotated[
        Path | None, typer.Option(help="With --against-vllm: a folder of videos to compare instead of made ones.")
    ] = None,
) -> None:
    """Compare the frames of every container, codec and structure with a linear decode.

    Exit with 1 where a file is not exact, or differs from vLLM's choice for no known reason.
    """
    from benchmarks.exactness.report import agreement_with_vllm  # noqa: PLC0415
    from benchmarks.exactness.report import conformance as run  # noqa: PLC0415

    if against_vllm and (only or write):
        raise typer.BadParameter(
            "It compares files of its own; leave out --only and --write.", param_hint="--against-vllm"
        )
    if clips and not against_vllm:
        raise typer.BadParameter("It needs --against-vllm.", param_hint="--clips")
    if against_vllm:
        raise typer.Exit(agreement_with_vllm(clips))
    raise typer.Exit(run(only=only, write=write))


BENCHES = (
    Bench(fuzz, "fuzz --count 5000 --seed 7"),
    Bench(conformance, "conformance --write docs/conformance.md"),
)
