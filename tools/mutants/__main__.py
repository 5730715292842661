"""Whether tests notice small faults: `python -m tools.mutants --count 300 --seed 1`.

Writes one fault at a time into a copy of the checkout, at a random place of the product's code, and runs the tests
beside that code, those of the fast tier, the likeliest first, until one fails. What passes them all is listed, with its
change: a missing test, code that does nothing, or a change that means the same. Tests that fail without a fault are
left out, and listed. Outcomes are kept in a file, so that a series which was interrupted goes on where it was.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import time
from collections import Counter, defaultdict, deque
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from tools.mutants.faults import ROOMS, Mutant, choose
from tools.mutants.sessions import FORK, Checkout, Session, end_with_parent, import_packages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.queues import SimpleQueue

_MAKES_SERVICES = ("infra/", "tasks/database/")  # which, if tests shared them, would be made without the fault
# A test that takes this much longer with a fault than without it has noticed it.
_SLOWER, _SLOWER_S = 3, 10


@dataclass(frozen=True, slots=True)
class Outcome:
    """What tests found of a fault.

    Attributes:
        mutant: The fault.
        result: "noticed", "MISSED" or "out of time".
        test: The test that noticed it; None if it cannot even be imported.
        left_out: Tests that fail without the fault.
        seconds: How long it took.
    """

    mutant: Mutant
    result: str
    test: str | None
    left_out: list[str]
    seconds: float


def _shares_services(mutant: Mutant) -> bool:
    return not mutant.file.startswith(_MAKES_SERVICES)


def find_tests(file: str, checkout: Path) -> list[list[str]]:
    """Return which files of tests to run for one of the code, one group after another, the likeliest first.

    First come the tests that import a file or have its name, then all in the folder that mirrors the file's, and those
    right in the folders above it, which use several of its parts; last those elsewhere that import it, or a module of
    tests that does.
    """
    parts = Path(file.removeprefix("tasks/").replace("engine/reelabel_engine", "engine")).with_suffix("").parts
    mirrors = (checkout.joinpath("tests", *parts[:count]) for count in range(len(parts), 0, -1))
    folder, *above = [mirror for mirror in mirrors if mirror.is_dir()] or [checkout / "tests"]
    sources = {path: path.read_text() for path in sorted((checkout / "tests").rglob("*.py"))}

    def importing(name: str) -> list[Path]:
        imports = re.compile(rf"\b(?:from|import) {re.escape(_module(name))}\b(?!\.)")
        return [path for path, source in sources.items() if imports.search(source)]

    users = importing(file.removeprefix("engine/"))
    users += [user for path in users for user in importing(str(path.relative_to(checkout)))]
    name = f"test_{parts[-1]}.py"
    beside = sorted(folder.rglob("test_*.py"), key=lambda path: (path.name != name, path))
    near = [path for path in beside if path.name == name or path in users]
    others = [path for path in beside if path not in near]
    others += [path for each in above for path in sorted(each.glob("test_*.py"))]
    elsewhere = [path for path in dict.fromkeys(users) if path.name.startswith("test_")]
    groups = near, others, [path for path in elsewhere if path not in near and path not in others]
    return [[str(path.relative_to(checkout)) for path in group] for group in groups if group]


def _module(file: str) -> str:
    return ".".join(Path(file).with_suffix("").parts).removesuffix(".__init__")


class Trials:
    """Tries faults in a copy of the checkout, each for about `seconds` at most."""

    def __init__(self, checkout: Checkout, seconds: float) -> None:
        self._checkout, self._seconds = checkout, seconds
        self._without_fault: dict[tuple[str, ...], Session] = {}

    def attempt(self, mutant: Mutant) -> Outcome:
        """Run the tests beside a fault until one notices it."""
        began_s, left_out = time.monotonic(), list[str]()

        def ended(result: str, test: str | None = None) -> Outcome:
            return Outcome(mutant, result, test, left_out, round(time.monotonic() - began_s, 1))

        run = partial(self._checkout.run, share_services=_shares_services(mutant))
        groups = deque(find_tests(mutant.file, self._checkout.path))
        while groups:
            tests = groups[0]
            within_s = began_s + self._seconds - time.monotonic()
            with self._checkout.with_fault(mutant):
                session = run([*tests, *(f"--deselect={test}" for test in left_out)], within_s=within_s)
            if not session.passed and self._is_due_to_fault(session, tests, run):
                return ended("noticed", session.test)
            if session.passed is None:
                return ended("out of time")
            if session.passed or session.test is None:
                groups.popleft()
            if not session.passed:
                left_out += [session.test] if session.test else tests
        return ended("MISSED")

    def _is_due_to_fault(self, session: Session, tests: list[str], run: Callable[..., Session]) -> bool:
        """Return whether what failed passes without the fault; much faster, if it was the time that ended it."""
        again = (session.test,) if session.test else (*tests, "--collect-only")
        if again not in self._without_fault:
            self._without_fault[again] = run(again, within_s=self._seconds)
        without = self._without_fault[again]
        in_time = session.passed is not None or session.test_s > _SLOWER * without.test_s + _SLOWER_S
        return bool(without.passed) and in_time


def try_all(mutants: list[Mutant], *, processes: int, seconds: float) -> Iterator[Outcome]:
    """Yield what tests notice, as soon as it is known."""
    with TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as folder, ExitStack() as stack:
        os.environ["PREFECT_HOME"] = f"{folder}/prefect"  # read when it is imported
        import_packages()
        trials: SimpleQueue[Trials] = FORK.SimpleQueue()
        for number in range(processes):
            checkout = Checkout(Path(folder, str(number)))
            checkout.fill()
            if any(_shares_services(mutant) for mutant in mutants):
                stack.enter_context(checkout.services_held())
            trials.put(Trials(checkout, seconds))
        held = multiprocessing.active_children()
        pool = stack.enter_context(ProcessPoolExecutor(processes, FORK, _begin, (trials,)))
        try:
            for done in as_completed([pool.submit(_attempt, mutant) for mutant in mutants]):
                yield done.result()
        finally:
            for process in set(multiprocessing.active_children()) - {*held}:
                process.kill()


_TRIALS: list[Trials] = []


def _begin(trials: SimpleQueue[Trials]) -> None:
    end_with_parent()
    _TRIALS.append(trials.get())


def _attempt(mutant: Mutant) -> Outcome:
    return _TRIALS[0].attempt(mutant)


def read_outcomes(path: Path) -> dict[Mutant, Outcome]:
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    outcomes = [Outcome(**line | {"mutant": Mutant(**line["mutant"])}) for line in lines]
    return {outcome.mutant: outcome for outcome in outcomes}


def as_table(outcomes: list[Outcome]) -> str:
    """Return a table in Markdown of what was noticed in each room."""
    lines = ["| room | faults | noticed | missed | out of time |", "|---|--:|--:|--:|--:|"]
    results = defaultdict[str, Counter[str]](Counter)
    for outcome in outcomes:
        results["/".join(Path(outcome.mutant.file).parent.parts[:2])][outcome.result] += 1
    for room, found in [*sorted(results.items()), ("all", sum(results.values(), Counter()))]:
        share = found["noticed"] / found.total()
        lines.append(f"| {room} | {found.total()} | {share:.0%} | {found['MISSED']} | {found['out of time']} |")
    return "\n".join(lines)


def main(
    *,
    count: Annotated[int, typer.Option(min=1, help="How many faults.")] = 300,
    seed: Annotated[int, typer.Option(help="Which ones.")] = 1,
    processes: Annotated[int, typer.Option(min=1, help="How many are tried at the same time.")] = 2,
    seconds: Annotated[float, typer.Option(min=1, help="The longest that tests of one fault may take.")] = 90,
    room: Annotated[list[str] | None, typer.Option(help="Folder or file of the code; may be repeated.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Try again what was missed or out of time.")] = False,
    outcomes: Annotated[
        Path | None, typer.Option(help="File that keeps them.", show_default="mutants-SEED.jsonl")
    ] = None,
) -> None:
    """Write small faults into the code at random; list those that its tests do not notice."""
    path = outcomes or Path(f"mutants-{seed}.jsonl")
    known = {
        mutant: outcome for mutant, outcome in read_outcomes(path).items() if outcome.result == "noticed" or not again
    }
    mutants = choose(count, seed, tuple(room or ROOMS))
    tried = [known[mutant] for mutant in mutants if mutant in known]
    if pending := [mutant for mutant in mutants if mutant not in known]:
        with path.open("a") as file:
            for outcome in try_all(pending, processes=processes, seconds=seconds):
                tried.append(outcome)
                file.write(json.dumps(asdict(outcome)) + "\n")
                file.flush()
                typer.echo(f"{len(tried):4} {outcome.seconds:4.0f} s {outcome.result:11} {outcome.mutant}")

    typer.echo(f"\n{as_table(tried)}\n")
    for outcome in sorted(tried, key=lambda outcome: (outcome.mutant.file, outcome.mutant.start)):
        if outcome.result != "noticed":
            typer.echo(f"{outcome.result:11} {outcome.mutant}")
    for test in sorted({test for outcome in tried for test in outcome.left_out}):
        typer.echo(f"Left out, as it fails without a fault: {test}")


if __name__ == "__main__":
    typer.run(main)
