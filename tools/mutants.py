"""Whether tests notice small faults: `python -m tools.mutants --count 300 --seed 1`.

Writes one fault at a time into a copy of the checkout, at a random place of the product's code, and runs the tests
beside that code, those of the fast tier. What passes them all is listed, with its change: a missing test, code that
does nothing, or a change that means the same. Tests that fail without a fault are left out, and listed.
"""

from __future__ import annotations

import ast
import os
import random
import re
import shutil
import signal
import subprocess
from bisect import bisect_right
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import pytest
import typer

from infra.processes import kill_children

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
ROOMS = ("reelabel", "engine/reelabel_engine", "flows", "tasks", "infra")
_TIMEOUT_S = 900
# What a fault does to tests that pass without it: they fail, or it cannot be imported by them or by a conftest.
_FAILED = {pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED, pytest.ExitCode.USAGE_ERROR}
_PASSED = {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}
_OPERATORS: dict[type[ast.AST], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
    ast.And: "or",
    ast.Or: "and",
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "+",
    ast.Div: "*",
    ast.FloorDiv: "*",
    ast.Mod: "*",
}


@dataclass(frozen=True, slots=True)
class Mutant:
    """A small fault.

    Attributes:
        file: The file, relative to the root.
        line: Its line, from 1.
        before: The source that is replaced.
        after: What replaces it.
        start: Where `before` starts in the file, in bytes.
    """

    file: str
    line: int
    before: str
    after: str
    start: int

    def applied(self, source: bytes) -> bytes:
        """Return the file with the fault."""
        end = self.start + len(self.before.encode())
        return source[: self.start] + self.after.encode() + source[end:]

    def __str__(self) -> str:
        """Return the place and the change, in a line."""
        before, after = (re.sub(r"\s+", " ", text) for text in (self.before, self.after))
        return f"{self.file}:{self.line}: {before[:100]} -> {after[:100]}"


def find_mutants(file: str, source: str) -> list[Mutant]:
    """Return all faults that can be written into a file, in its order.

    Left out is what no test can notice or should: annotations, decorators, texts, logs, assertions (those of `zip`
    included), what errors and representations say, and what only type checkers run.
    """
    finder = _Finder(file, source)
    finder.visit(ast.parse(source))
    return sorted(finder.found, key=lambda mutant: (mutant.start, mutant.after))


class _Finder(ast.NodeVisitor):
    """Collects the faults of a file."""

    def __init__(self, file: str, source: str) -> None:
        self.found: list[Mutant] = []
        self._file = file
        self._lines = source.encode().splitlines(keepends=True)
        self._starts = [0, *accumulate(map(len, self._lines))]
        self._source = source.encode()

    def visit_If(self, node: ast.If) -> None:
        if "TYPE_CHECKING" not in ast.unparse(node.test):
            self._negate(node.test)
            self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        self._replace_operator(node.left, node.comparators[0], _OPERATORS[type(node.ops[0])])
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self._replace_operator(node.values[0], node.values[1], _OPERATORS[type(node.op)])
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if type(node.op) in _OPERATORS:
            self._replace_operator(node.left, node.right, _OPERATORS[type(node.op)])
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        match node.value:
            case bool(value):
                self._replace(node, str(not value))
            case int() | float():
                self._replace(node, f"({self._text(node)} + 1)")

    def visit_Return(self, node: ast.Return) -> None:
        if node.value and not isinstance(node.value, ast.Constant):
            self._replace(node.value, "None")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if "_LOG." not in ast.unparse(node):
            if isinstance(node.value, ast.Call):
                self._replace(node, "pass")
            self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        is_zip = ast.unparse(node.func) == "zip"
        for part in (node.func, *node.args, *(each for each in node.keywords if each.arg != "repr" and not is_zip)):
            self.visit(part)

    def visit_Break(self, node: ast.Break) -> None:
        self._replace(node, "continue")

    def visit_Continue(self, node: ast.Continue) -> None:
        self._replace(node, "break")

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value:
            self.visit(node.value)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for part in node.body:
            self.visit(part)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for part in (*node.args.defaults, *filter(None, node.args.kw_defaults), *node.body):
            self.visit(part)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 - ast's

    def visit_Assert(self, _node: ast.Assert) -> None:
        pass

    def visit_Raise(self, _node: ast.Raise) -> None:
        pass

    def _negate(self, test: ast.expr) -> None:
        if not isinstance(test, ast.Compare | ast.BoolOp | ast.Constant):  # whose operators are replaced
            self._replace(test, f"(not ({self._text(test)}))")

    def _replace_operator(self, left: ast.expr, right: ast.expr, operator: str) -> None:
        start, end = self._place(left.end_lineno, left.end_col_offset), self._place(right.lineno, right.col_offset)
        if between := re.fullmatch(r"(\)*\s*)([^\s()#]+(?: in| not)?)(\s*\(*)", self._source[start:end].decode()):
            self._add(start + len(between[1].encode()), between[2], operator)

    def _replace(self, node: ast.expr | ast.stmt, after: str) -> None:
        self._add(self._place(node.lineno, node.col_offset), self._text(node), after)

    def _add(self, start: int, before: str, after: str) -> None:
        self.found.append(Mutant(self._file, bisect_right(self._starts, start), before, after, start))

    def _text(self, node: ast.expr | ast.stmt) -> str:
        start = self._place(node.lineno, node.col_offset)
        return self._source[start : self._place(node.end_lineno, node.end_col_offset)].decode()

    def _place(self, line: int | None, column: int | None) -> int:
        assert line is not None
        assert column is not None
        return self._starts[line - 1] + column


def find_tests(file: str, tests: Path) -> list[list[Path]]:
    """Return what to run, one after another, the likeliest first.

    These are the tests that import a file, those in the folder that mirrors the file's, and those right in the folders
    above it, which use several of its parts.
    """
    parts = Path(file.removeprefix("tasks/").replace("engine/reelabel_engine", "engine")).with_suffix("").parts
    mirrors = (tests.joinpath(*parts[:count]) for count in range(len(parts), 0, -1))
    found = [mirror for mirror in mirrors if mirror.is_dir()]
    folder, *above = found or [tests]
    module = ".".join(Path(file.removeprefix("engine/")).with_suffix("").parts).removesuffix(".__init__")
    imports = re.compile(rf"\b(?:from|import) {re.escape(module)}\b(?!\.)")
    near = [path for path in sorted(folder.rglob("test_*.py")) if imports.search(path.read_text())]
    return [group for group in (near, found[:1], *(sorted(each.glob("test_*.py")) for each in above)) if group]


def _tracked(*folders: str) -> list[str]:
    listed = subprocess.check_output(("git", "ls-files", "-z", *folders), cwd=ROOT, text=True)  # noqa: S603, S607
    return listed.split("\0")[:-1]


def copy_checkout(copy: Path) -> None:
    """Copy the tracked files, and link the environments."""
    for name in _tracked():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, copy / name)
    for environment in (".venv", ".venv-engine"):
        (copy / environment).symlink_to(ROOT / environment)


def is_noticed(mutant: Mutant, copy: Path, passing: dict[tuple[str, ...], bool]) -> bool:
    """Tell whether a test beside the fault fails, or does not end in time.

    Args:
        mutant: The fault.
        copy: The copy of the checkout to write it into.
        passing: Whether tests pass without a fault; those not in it are run, and added.
    """
    for paths in find_tests(mutant.file, copy / "tests"):
        tests = tuple(str(path.relative_to(copy)) for path in paths)
        if tests not in passing:
            passing[tests] = _run(tests, copy) in _PASSED
        if passing[tests]:
            with _written(mutant, copy):
                ended = _run(tests, copy)
            if ended is None or ended in _FAILED:
                return True
    return False


@contextmanager
def _written(mutant: Mutant, copy: Path) -> Iterator[None]:
    path = copy / mutant.file
    source = path.read_bytes()
    path.write_bytes(mutant.applied(source))
    try:
        yield
    finally:
        path.write_bytes(source)


def _run(tests: tuple[str, ...], copy: Path) -> int | None:
    """Return pytest's exit status; None if it did not end in time."""
    command = (".venv/bin/python", "-m", "pytest", "-q", "-x", "-n", "0", "-m", "not system", "-p", "no:cacheprovider")
    environment = os.environ | {
        # Before the installed packages, which are those of the checkout itself.
        "PYTHONPATH": os.pathsep.join(map(str, (copy, copy / "engine"))),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    with subprocess.Popen(  # noqa: S603
        [*command, *tests],
        cwd=copy,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        process_group=0,
    ) as run:
        try:
            return run.wait(_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, signal.SIGKILL)
            return None


def choose(count: int, seed: int, rooms: tuple[str, ...] = ROOMS) -> list[Mutant]:
    """Return faults at random places of all that there are."""
    files = [name for name in _tracked(*rooms) if name.endswith(".py")]
    found = [mutant for file in files for mutant in find_mutants(file, (ROOT / file).read_text())]
    return random.Random(seed).sample(found, min(count, len(found)))  # noqa: S311


def main(
    count: Annotated[int, typer.Option(min=1, help="How many faults.")] = 300,
    seed: Annotated[int, typer.Option(help="Which ones.")] = 1,
    processes: Annotated[int, typer.Option(min=1, help="How many are tried at the same time.")] = 2,
    room: Annotated[list[str] | None, typer.Option(help="Folder or file of the code; may be repeated.")] = None,
) -> None:
    """Write small faults into the code at random; list those that its tests do not notice."""
    tried: dict[str, list[tuple[Mutant, bool]]] = defaultdict(list)
    copies: SimpleQueue[Path] = SimpleQueue()
    passing: dict[tuple[str, ...], bool] = {}
    with TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(processes) as threads:
        for number in range(processes):
            copy_checkout(copy := Path(folder, str(number)))
            copies.put(copy)

        def attempt(mutant: Mutant) -> tuple[Mutant, bool]:
            copy = copies.get()
            try:
                return mutant, is_noticed(mutant, copy, passing)
            finally:
                copies.put(copy)

        pending = [threads.submit(attempt, mutant) for mutant in choose(count, seed, tuple(room or ROOMS))]
        try:
            for number, done in enumerate(as_completed(pending), start=1):
                mutant, noticed = done.result()
                tried["/".join(Path(mutant.file).parts[:2])].append((mutant, noticed))
                typer.echo(f"{number:4} {'noticed' if noticed else 'MISSED '} {mutant}")
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
            kill_children()  # of an interrupted call

    typer.echo("\n| code | faults | noticed |\n|---|--:|--:|")
    tried["all"] = [outcome for outcomes in tried.values() for outcome in outcomes]
    for code, outcomes in sorted(tried.items()):
        share = sum(noticed for _, noticed in outcomes) / len(outcomes)
        typer.echo(f"| {code} | {len(outcomes)} | {share:.0%} |")
    typer.echo("\n".join(["", *sorted(str(mutant) for mutant, noticed in tried["all"] if not noticed)]))
    for tests in sorted(tests for tests, passed in passing.items() if not passed):
        typer.echo(f"Left out, as they fail without a fault: {' '.join(tests)}")


if __name__ == "__main__":
    typer.run(main)
