"""The command line of the benchmarks: `python -m benchmarks NAME`."""

from __future__ import annotations

import os

import typer

from benchmarks.describe import command as describe
from benchmarks.engine import command as engine
from benchmarks.exactness import command as exactness
from benchmarks.extraction import command as extraction
from benchmarks.live import command as live
from benchmarks.peers import command as peers
from benchmarks.pipeline import command as pipeline
from benchmarks.scale import command as scale
from benchmarks.scenes import command as scenes
from benchmarks.search import command as search
from benchmarks.serve import command as serve
from benchmarks.torchcodec import command as torchcodec
from benchmarks.trade import command as trade
from flows.cli.command_group import ReelabelGroup
from infra.proxies import go_around_proxies

app = typer.Typer(
    name="python -m benchmarks",
    cls=ReelabelGroup,
    help="Reproduce the figures of the documentation.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

for part in (
    extraction,
    torchcodec,
    engine,
    live,
    pipeline,
    serve,
    scale,
    trade,
    scenes,
    describe,
    search,
    peers,
    exactness,
):
    for bench in part.BENCHES:
        app.command(epilog=f"Example: python -m benchmarks {bench.example}")(bench.run)


def main() -> None:
    """Run a benchmark."""
    go_around_proxies()
    os.environ.setdefault("PYTHONSAFEPATH", "1")
    app()


if __name__ == "__main__":
    main()
