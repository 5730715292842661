"""Manifests from CSV."""

from __future__ import annotations

import csv
import json
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import polars as pl

from infra.errors import ManifestError
from reelabel.integrations.chat_messages import is_valid_unicode
from tasks.manifest.schema import COLUMNS, REPLACED_BY_MESSAGES, REQUIRED

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_NUMBERS = ("start_s", "end_s")


def import_csv(path: Path) -> pl.DataFrame:
    """Read a CSV file with the manifest's column names; unknown columns are dropped.

    `choices` is a JSON list (`["yes", "no"]`) or separated by bars (`yes|no`). An empty cell is null.

    Raises:
        ManifestError: The file or a value cannot be parsed; the message gives the line.
    """
    rows = []
    try:
        # Spreadsheets may export a byte order mark.
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
    """Allow cells with whole videos as data: URIs; the limit is global, and is restored afterwards."""
    before = csv.field_size_limit(sys.maxsize)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def unknown_columns(path: Path) -> list[str]:
    """List the columns of a CSV file that are not manifest columns, and that `import_csv` drops."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        return [name for name in next(csv.reader(file), []) if name not in COLUMNS]


def _known_names(path: Path, header: list[str]) -> list[str]:
    duplicates = sorted({name for name in header if header.count(name) > 1})
    if duplicates:
        raise ManifestError(f"{path} has duplicate columns: {', '.join(duplicates)}; rename or remove one of each.")
    replaced = REPLACED_BY_MESSAGES if "messages" in header else ()
    missing = [name for name in REQUIRED if name not in header and name not in replaced]
    if missing:
        found = ", ".join(header) or "nothing"
        raise ManifestError(
            f"{path} lacks the columns {', '.join(missing)}; its first line is: {found}. "
            "The first line must list the columns of a manifest, separated by commas.",
        )
    return [name for name in header if name in COLUMNS]


def _row(cells: dict[str, str], names: list[str]) -> dict[str, object]:
    # DictReader collects surplus cells under the key None, and fills missing cells with None.
    if None in cells or None in cells.values():
        raise ValueError("the number of cells differs from that of the header")
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
        raise ValueError("choices is nested too deeply for a JSON list of strings") from None
    except ValueError:
        raise ValueError(f"choices {text!r} is not a JSON list") from None
    if not all(isinstance(value, str) for value in values):
        raise ValueError(f"choices {text!r} contains a value that is not a string")
    if not all(map(is_valid_unicode, values)):
        raise ValueError(f"choices {text!r} contains an unpaired surrogate, which is not a valid character")
    return list(values)
