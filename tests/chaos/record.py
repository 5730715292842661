"""Outcomes kept in a file, so that many trials may be made a few at a time."""

import json
from collections import Counter

from tests.chaos.trial import Outcome


def keep(path, outcome, *, engine, seed):
    """Add an outcome to a file of JSON lines."""
    with path.open("a") as file:
        file.write(json.dumps({"engine": engine, "seed": seed, **vars(outcome)}) + "\n")


def recorded(path, *, engine):
    """Read the outcomes of trials with an engine, each once, however often its seed was run."""
    rows = {}
    for line in path.read_text().splitlines():
        row = json.loads(line)
        name, seed = row.pop("engine"), row.pop("seed")
        if name == engine:
            rows[seed, row["number"]] = Outcome(**row | {"struck": Counter(row["struck"])})
    return list(rows.values())
