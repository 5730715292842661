"""A file of outcomes, so that trials can be run a few at a time."""

import json
from collections import Counter

from tests.chaos.sessions.service import ENGINES as SESSION_ENGINES
from tests.chaos.sessions.trial import SessionOutcome
from tests.chaos.trial import Outcome


def append_outcome(path, outcome, *, engine, seed):
    """Append an outcome to a file of JSON lines."""
    with path.open("a") as file:
        file.write(json.dumps({"engine": engine, "seed": seed, **vars(outcome)}) + "\n")


def read_outcomes(path, *, engine):
    """Read the outcomes of trials with an engine; of repeated trials with the same seed, the last one."""
    rows, kind = {}, SessionOutcome if engine in SESSION_ENGINES else Outcome
    for line in path.read_text().splitlines():
        row = json.loads(line)
        name, seed = row.pop("engine"), row.pop("seed")
        if name == engine:
            rows[seed, row["number"]] = kind(**row | {"struck": Counter(row["struck"])})
    return list(rows.values())
