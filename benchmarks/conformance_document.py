"""Writing docs/conformance.md from the verdicts: `python -m benchmarks.conformance_document FILE`."""

from __future__ import annotations

import re
import sys
from collections import Counter, defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from benchmarks.conformance import judge
from benchmarks.media.codecs import CODECS
from benchmarks.media.containers import CONTAINERS
from benchmarks.media.matrix import PLAIN, Cell, matrix

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.conformance import Verdict

_TEXT = Path(__file__).with_name("conformance_text.md")


def judge_matrix() -> dict[Cell, Verdict]:
    """Make and judge every cell."""
    verdicts = {}
    with TemporaryDirectory(prefix="reelabel-") as folder:
        path = Path(folder) / "clip"
        for cell in matrix():
            path.write_bytes(cell.make())
            verdicts[cell] = judge(cell, path)
    return verdicts


def conformance_document(verdicts: Mapping[Cell, Verdict]) -> str:
    """Write the document, in Markdown."""
    return _TEXT.read_text().format(
        files=len(verdicts),
        exact=sum(not verdict.faults for verdict in verdicts.values()),
        containers=len(CONTAINERS),
        codecs=len(CODECS),
        wrong=_wrong(verdicts),
        plain=_plain_table(verdicts),
        structures=_structure_table(verdicts),
        ways=_ways_table(verdicts),
    )


def _wrong(verdicts: Mapping[Cell, Verdict]) -> str:
    lines = [f"- `{cell.name}`: {verdict.faults[0]}" for cell, verdict in verdicts.items() if verdict.faults]
    return "\n".join(lines) or "None."


def _plain_table(verdicts: Mapping[Cell, Verdict]) -> str:
    titles = [container.title for container in CONTAINERS.values()]
    rows = [[codec, *(_mark(verdicts.get(Cell(name, codec))) for name in CONTAINERS)] for codec in CODECS]
    return _table(["", *titles], rows)


def _structure_table(verdicts: Mapping[Cell, Verdict]) -> str:
    files: dict[str, list[str]] = defaultdict(list)
    for cell, verdict in verdicts.items():
        if cell.structure != PLAIN:
            files[cell.title].append(f"{cell.container}/{cell.codec} {_mark(verdict)}")
    return _table(["Structure", "Files"], [[title, ", ".join(marks)] for title, marks in files.items()])


def _ways_table(verdicts: Mapping[Cell, Verdict]) -> str:
    # How many bytes a file lacks depends on the machine's encoders.
    reasons = (re.sub(r"its last [\d,]+ bytes", "its last bytes", verdict.reason) for verdict in verdicts.values())
    methods = (verdict.method for verdict in verdicts.values())
    ways = Counter((method, reason or "its own way works") for method, reason in zip(methods, reasons, strict=True))
    rows = [[method, reason, str(count)] for (method, reason), count in sorted(ways.items())]
    return _table(["Way", "Why", "Files"], rows)


def _mark(verdict: Verdict | None) -> str:
    if verdict is None:
        return ""
    return f"**wrong** ({verdict.method})" if verdict.faults else verdict.method


def _table(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(conformance_document(judge_matrix()))
