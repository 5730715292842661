"""The command line of the benchmarks: `python -m benchmarks NAME`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import typer

from benchmarks.commands.exactness import conformance, fuzz, trade
from benchmarks.commands.parts import engine, extract, scenes, search
from benchmarks.commands.pipelines import live, peers, pipeline, scale, serve
from flows.cli.command_group import ReelabelGroup
from infra.proxies import bypass_proxies

if TYPE_CHECKING:
    from collections.abc import Callable

app = typer.Typer(
    name="python -m benchmarks",
    cls=ReelabelGroup,
    help="Reproduce the figures of the documentation.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

# Each command with an example for its help.
EXAMPLES: dict[Callable[..., None], str] = {
    extract: "extract decode --lengths 30,600",
    engine: "engine words --model tiny --requests 512",
    pipeline: "pipeline gpu --questions 480 --sizes 320x240 --minutes 9",
    live: "live --model tiny --frames 8,32 --minutes 1 --labels 30",
    serve: "serve --concurrency 1,16 --requests 60",
    scale: "scale --rows 100000,1000000",
    trade: "trade --json",
    scenes: "scenes --methods auto,ema --clips real",
    search: "search --vectors 100000",
    peers: "peers --clips 8,2,1 --peers daft",
    conformance: "conformance --write docs/conformance.md",
    fuzz: "fuzz --count 5000 --seed 7",
}
for command, example in EXAMPLES.items():
    app.command(epilog=f"Example: python -m benchmarks {example}")(command)


def main() -> None:
    bypass_proxies()
    os.environ.setdefault("PYTHONSAFEPATH", "1")
    app()


if __name__ == "__main__":
    main()
