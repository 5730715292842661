"""docs/conformance.md, from the results of every file of the matrix."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.media.codecs import CODECS, CONTAINERS
from benchmarks.media.matrix import PLAIN, Cell

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.exactness.conformance import ConformanceResult

_TEXT = Path(__file__).with_name("document.md")


def conformance_document(results: Mapping[Cell, ConformanceResult]) -> str:
    return _TEXT.read_text().format(
        files=len(results),
        exact=sum(not result.faults for result in results.values()),
        containers=len(CONTAINERS),
        codecs=len(CODECS),
        wrong=_wrong(results),
        plain=_plain_table(results),
        structures=_structure_table(results),
        methods=_methods_table(results),
    )


def _wrong(results: Mapping[Cell, ConformanceResult]) -> str:
    lines = [f"- `{cell.name}`: {result.faults[0]}" for cell, result in results.items() if result.faults]
    return "\n".join(lines) or "None."


def _plain_table(results: Mapping[Cell, ConformanceResult]) -> str:
    titles = [container.title for container in CONTAINERS.values()]
    rows = [[codec, *(_mark(results.get(Cell(name, codec))) for name in CONTAINERS)] for codec in CODECS]
    return _table(["", *titles], rows)


def _structure_table(results: Mapping[Cell, ConformanceResult]) -> str:
    files: dict[str, list[str]] = defaultdict(list)
    for cell, result in results.items():
        if cell.structure != PLAIN:
            files[cell.title].append(f"{cell.container}/{cell.codec} {_mark(result)}")
    return _table(["Structure", "Files"], [[title, ", ".join(marks)] for title, marks in files.items()])


def _methods_table(results: Mapping[Cell, ConformanceResult]) -> str:
    # The number of missing bytes depends on the machine's encoders.
    reasons = (re.sub(r"its last [\d,]+ bytes", "its last bytes", result.reason) for result in results.values())
    methods = (result.method for result in results.values())
    counts = Counter(
        (method, reason or "the usual method works") for method, reason in zip(methods, reasons, strict=True)
    )
    rows = [[method, reason, str(count)] for (method, reason), count in sorted(counts.items())]
    return _table(["Method", "Reason", "Files"], rows)


def _mark(result: ConformanceResult | None) -> str:
    if result is None:
        return ""
    return f"**wrong** ({result.method})" if result.faults else result.method


def _table(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
