"""The table of the frame samplers."""

from __future__ import annotations

import json

from rich.table import Table

from flows.cli.console import OUT, cell
from reelabel.sampling.registry import samplers


def print_samplers(*, as_json: bool) -> None:
    """Print each sampler with what it shows, the options that it takes and the model families trained with it."""
    table = Table("sampler", "shows", "options", box=None, pad_edge=False)
    for spec in samplers().values():
        options = ["num_frames"] * spec.takes_num_frames + sorted(
            spec.options - {"times_ms"}
        )  # set by `relevant` itself
        if as_json:
            facts = {"sampler": spec.name, "aliases": spec.aliases, "shows": spec.summary, "options": options}
            print(json.dumps(facts | {"models": sorted(spec.model_types)}))  # noqa: T201
        names = ", ".join((spec.name, *spec.aliases))
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in options)
        table.add_row(*map(cell, (names, spec.summary, flags)))
    if not as_json:
        OUT.print(table)
