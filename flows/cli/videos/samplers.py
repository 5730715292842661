"""`reelabel samplers`."""

from __future__ import annotations

from json import dumps
from typing import Annotated

import typer

from flows.cli.console import OUT, make_table
from flows.cli.options import example
from reelabel.sampling.registry import samplers as registered


@example("reelabel samplers")
def samplers(
    *, json: Annotated[bool, typer.Option("--json", help="Print one JSON object per sampler.")] = False
) -> None:
    """List the frame samplers and their options."""
    rows = []
    for spec in registered().values():
        options = ["num_frames"] * spec.uses_num_frames
        options += sorted(spec.options - {"times_ms"})  # which `relevant` sets itself
        if json:
            facts = {"sampler": spec.name, "aliases": spec.aliases, "shows": spec.summary, "options": options}
            print(dumps(facts | {"models": sorted(spec.model_types)}))  # noqa: T201
        names = ", ".join((spec.name, *spec.aliases))
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in options)
        rows.append((names, spec.summary, flags))
    if not json:
        OUT.print(make_table(("sampler", "shows", "options"), rows, plain=True))
