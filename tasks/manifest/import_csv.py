"""Manifests from CSV."""

from __future__ import annotations

import csv
import json
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import polars as pl

from infra.errors import ManifestError
from tasks.manifest.messages import is_text
from tasks.manifest.schema import COLUMNS, REPLACED_BY_MESSAGES, REQUIRED

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_NUMBERS = ("start_s", "end_s")


def import_csv(path: Path) -> pl.DataFrame:
    """Read a CSV file with the manifest's column names; unknown columns are dropped.

    `choices` is a JSON list (`["yes", "no"]`) or is separated by bars (`yes|no`). An empty cell is null.

    Raises:
        ManifestError: The file cannot be read, or a value cannot; its line is named.
    """
    rows = []
    try:
        # A spreadsheet's export may open with a byte order mark.
        with _any_field_size(), path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, strict=True)
            names = _known_names(path, list(reader.fieldnames or ()))
            for cells in reader:
                try:
                    rows.append(_row(cells, names))
                except ValueError as error:
                    raise ManifestError(f"{path}, line {reader.line_num}: {error}.") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ManifestError(f"Cannot read {path} as CSV: {error}.") from None
    return pl.DataFrame(rows, schema={name: COLUMNS[name] for name in names})


@contextmanager
def _any_field_size() -> Iterator[None]:
    """Let cells hold whole videos as data: URIs; the limit is the process's, and is put back."""
    before = csv.field_size_limit(sys.maxsize)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def foreign_columns(path: Path) -> list[str]:
    """Name the columns of a CSV file that no manifest has, and that `import_csv` drops."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        return [name for name in next(csv.reader(file), []) if name not in COLUMNS]


def _known_names(path: Path, header: list[str]) -> list[str]:
    doubled = sorted({name for name in header if header.count(name) > 1})
    if doubled:
        raise ManifestError(f"{path} names columns twice: {', '.join(doubled)}; rename or remove one of each.")
    replaced = REPLACED_BY_MESSAGES if "messages" in header else ()
    missing = [name for name in REQUIRED if name not in header and name not in replaced]
    if missing:
        found = ", ".join(header) or "nothing"
        raise ManifestError(
            f"{path} lacks {', '.join(missing)}; its first line holds {found}. "
            "It must name the columns of a manifest, separated by commas.",
        )
    return [name for name in header if name in COLUMNS]


def _row(cells: dict[str, str], names: list[str]) -> dict[str, object]:
    # DictReader keeps surplus cells under None, and fills missing ones with it.
    if None in cells or None in cells.values():
        raise ValueError("the number of cells is not that of the header")
    return {name: _value(name, cells[name]) for name in names}


def _value(name: str, text: str) -> object:
    if not text:
        return None
    if name == "choices":
        return _choices(text)
    if name not in _NUMBERS:
        return text
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{name} {text!r} is not a number") from None


def _choices(text: str) -> list[str]:
    if not text.lstrip().startswith("["):
        return [part.strip() for part in text.split("|")]
    try:
        values = json.loads(text)
    except RecursionError:
        raise ValueError("choices is nested too deeply for a JSON list of texts") from None
    except ValueError:
        raise ValueError(f"choices {text!r} is not a JSON list") from None
    if not all(isinstance(value, str) for value in values):
        raise ValueError(f"choices {text!r} holds something other than text")
    if not all(map(is_text, values)):
        raise ValueError(f"choices {text!r} holds half of a surrogate pair, which is no character")
    return list(values)
