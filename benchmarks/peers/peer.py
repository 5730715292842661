"""The compared tools, including Reelabel."""

from __future__ import annotations

import io
import re
import tokenize
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_SCRIPTS = Path(__file__).with_name("scripts")
_SHARED = re.compile(r"^\s*from benchmarks\.peers\.scripts\.(\w+)\.(\w+) import", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A tool that does the same jobs.

    Attributes:
        name: Name in tables.
        script: Name of its scripts, one for each kind of job that it can do.
        environment: Name of its environment; None uses ours.
        has_keyframes: Whether it can choose them.
    """

    name: str
    script: str
    environment: str | None = None
    has_keyframes: bool = True

    def path(self, kind: str) -> Path:
        """Return the path of its script for a kind of job."""
        return _SCRIPTS / kind / f"{self.script}.py"

    def lines(self, kind: str) -> int:
        """Return the lines of its script that hold code, with those of what it shares with other scripts."""
        code = self.path(kind).read_text()
        shared = [(_SCRIPTS / folder / f"{name}.py").read_text() for folder, name in _SHARED.findall(code)]
        return sum(map(count_lines, (code, *shared)))


OURS = Peer(name="reelabel", script="ours")
PLAIN = (
    Peer(name="plain script", script="plain", environment="plain"),
    Peer(name="plain, by URL", script="url"),
)
PEERS = (
    *PLAIN,
    Peer(name="Daft", script="daft", environment="daft"),
    Peer(name="Pixeltable", script="pixeltable", environment="pixeltable"),
    Peer(name="Ray Data", script="ray_data", environment="ray_data", has_keyframes=False),
    Peer(name="DataChain", script="datachain", environment="datachain", has_keyframes=False),
)


def count_lines(code: str) -> int:
    """Return the number of lines that hold code: no comments, docstrings or blank lines."""
    return len(set(_code_lines(code)))


def _code_lines(code: str) -> Iterator[int]:
    silent = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    is_statement_start = True
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        is_docstring = token.type == tokenize.STRING and is_statement_start
        if token.type not in silent and not is_docstring:
            yield from range(token.start[0], token.end[0] + 1)
        if token.type not in {tokenize.COMMENT, tokenize.NL}:
            is_statement_start = token.type in {tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING}
