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
        script: Name of its scripts, one for each kind of job.
        environment: Name of its environment; None uses ours.
        kinds: The kinds of jobs that it is asked for.
        lacks: Why it cannot do what, by what cases want.
    """

    name: str
    script: str
    environment: str | None = None
    kinds: tuple[str, ...] = ("frames",)
    lacks: tuple[tuple[str, str], ...] = ()

    def lack(self, wanted: str) -> str:
        """Return why it cannot do what a case wants; empty if it can."""
        return dict(self.lacks).get(wanted, "")

    def lines(self, kind: str) -> int:
        """Return the lines of its script that hold code, with those of what it shares with other scripts."""
        code = (_SCRIPTS / kind / f"{self.script}.py").read_text()
        shared = [(_SCRIPTS / folder / f"{name}.py").read_text() for folder, name in _SHARED.findall(code)]
        return sum(map(count_lines, (code, *shared)))


_ALL_KINDS = ("frames", "questions", "descriptions")
_TRANSCODES = "its frames are of clips that it has encoded anew"
_ASKS_NO_MODEL = "it asks no model; a function of your own can"
OURS = Peer(name="reelabel", script="ours", kinds=_ALL_KINDS)
PLAIN = (
    Peer(name="plain script", script="plain", environment="plain", kinds=_ALL_KINDS),
    Peer(name="plain, by URL", script="url"),
)
PEERS = (
    *PLAIN,
    Peer(name="Daft", script="daft", environment="daft", kinds=_ALL_KINDS),
    Peer(name="Pixeltable", script="pixeltable", environment="pixeltable", kinds=_ALL_KINDS),
    Peer(
        name="Ray Data",
        script="ray_data",
        environment="ray_data",
        kinds=_ALL_KINDS,
        lacks=(("keyframes", "its reader chooses frames by their rate alone"),),
    ),
    Peer(
        name="DataChain",
        script="datachain",
        environment="datachain",
        kinds=_ALL_KINDS,
        lacks=(("keyframes", "it finds frames by their number alone"), ("answers", _ASKS_NO_MODEL)),
    ),
    # https://docs.nvidia.com/nemo/curator/latest/curate-video/process-data/index.html, and its ClipTranscodingStage
    Peer(
        name="NeMo Curator",
        script="nemo_curator",
        kinds=_ALL_KINDS,
        lacks=(
            ("keyframes", _TRANSCODES),
            ("uniform", _TRANSCODES),
            ("answers", "its stages that ask a model need a GPU"),
            ("vectors", "its stages that embed clips need a GPU"),
        ),
    ),
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
