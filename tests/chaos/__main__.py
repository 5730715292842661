"""Run chaos trials, and print how often each fault was injected; exit with 1 if any trial failed."""

import argparse
import random
import signal
import sys
from collections import Counter
from dataclasses import fields, replace
from pathlib import Path
from tempfile import mkdtemp

from rich.console import Console
from rich.table import Table

from tests.chaos.faults import FAULTS
from tests.chaos.record import append_outcome, read_outcomes
from tests.chaos.sessions.service import ENGINES as SESSION_ENGINES
from tests.chaos.suite import run_suite

_CONSOLE = Console()


def main():
    """Run the suite with the options of the command line."""
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))  # so that nothing is left running
    options = _options()
    folder = Path(mkdtemp(prefix="reelabel-chaos-"))
    _CONSOLE.print(f"Seed {options.seed}; logs are in {folder}.")
    wanted = {name: getattr(options, name) for name in ("trials", "seed", "engine", "clips", "faults")}
    outcomes = []
    for outcome in run_suite(folder, **wanted) if options.trials else ():
        outcomes.append(outcome)
        _CONSOLE.print(_line(outcome), style="red" if outcome.wrong else "", soft_wrap=True)
        if options.record:
            append_outcome(options.record, outcome, engine=options.engine, seed=options.seed)
    if options.record:
        outcomes = read_outcomes(options.record, engine=options.engine)
    _CONSOLE.print(_table(outcomes))
    wrong = sum(bool(outcome.wrong) for outcome in outcomes)
    _CONSOLE.print(f"{len(outcomes)} trials, {wrong} failed; engine {options.engine}.")
    if outcomes:
        _CONSOLE.print(f"In all: {_sum(outcomes).facts}.", soft_wrap=True)
    return 1 if wrong or not outcomes else 0


def _options():
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--trials", type=int, default=5, help="number of trials; 0 only prints the record")
    parser.add_argument(
        "--seed", type=int, default=random.SystemRandom().randrange(10**6), help="seed of faults and their times"
    )
    parser.add_argument(
        "--engine",
        choices=["openai", "vllm", "encoder", *SESSION_ENGINES],
        default="openai",
        help="a shared vLLM server, or an engine per run; the encoder of descriptions; or live sessions, by vLLM or by "
        "a stub of it",
    )
    parser.add_argument("--clips", type=int, default=100, help="number of clips, with three jobs each")
    names = [fault.name for fault in FAULTS]
    parser.add_argument("--faults", nargs="+", choices=names, default=names, help="faults to inject; all by default")
    parser.add_argument("--record", type=Path, help="file to append outcomes to; the table covers all of them")
    return parser.parse_args()


def _line(outcome):
    verdict = "; ".join(outcome.wrong) or "passed"
    struck = ", ".join(f"{count}x {name}" if count > 1 else name for name, count in outcome.struck.items())
    return (
        f"Trial {outcome.number} ({outcome.what}): {verdict}; {struck or 'no faults injected'}; {outcome.facts}, "
        f"{outcome.seconds:.0f} s."
    )


def _sum(outcomes):
    """Return an outcome with the sums of all numbers."""
    names = [field.name for field in fields(outcomes[0]) if field.type is int]
    return replace(outcomes[0], **{name: sum(getattr(each, name) for each in outcomes) for name in names})


def _table(outcomes):
    struck = sum((outcome.struck for outcome in outcomes), Counter())
    table = Table("fault", "injected", "trials")
    for name, count in struck.most_common():
        table.add_row(name, str(count), str(sum(name in outcome.struck for outcome in outcomes)))
    return table


if __name__ == "__main__":
    sys.exit(main())
