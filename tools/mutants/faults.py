"""Small faults that can be written into the code, one at a time."""

from __future__ import annotations

import ast
import random
import re
import subprocess
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("reelabel", "engine/reelabel_engine", "flows", "tasks", "infra")
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
        end = self.start + len(self.before.encode())
        return source[: self.start] + self.after.encode() + source[end:]

    def __str__(self) -> str:
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


def tracked_files(*folders: str) -> list[str]:
    """Return the names of the files that git tracks, relative to the root."""
    listed = subprocess.check_output(("git", "ls-files", "-z", *folders), cwd=ROOT, text=True)  # noqa: S603, S607
    return listed.split("\0")[:-1]


def choose(count: int, seed: int, rooms: tuple[str, ...] = ROOMS) -> list[Mutant]:
    """Return faults at random places of all that there are."""
    files = [name for name in tracked_files(*rooms) if name.endswith(".py")]
    found = [mutant for file in files for mutant in find_mutants(file, (ROOT / file).read_text())]
    return random.Random(seed).sample(found, min(count, len(found)))  # noqa: S311
