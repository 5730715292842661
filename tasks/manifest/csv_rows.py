"""The rows of a CSV file, with their lines."""

from __future__ import annotations

import csv
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from infra.errors import ManifestError
from reelabel.text import why_unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tasks.manifest.rejects import ImportedRows

# The first one, unless the header has more of another.
_SEPARATORS = ",;\t"


def read_header(path: Path) -> list[str]:
    """Read the column names of a CSV file, whose columns are separated by commas, semicolons or tabs.

    Raises:
        ManifestError: The file cannot be read, or has duplicate columns.
    """
    with _opened(path) as rows:
        _, names = next(rows, (1, []))
    duplicates = sorted({name for name in names if names.count(name) > 1})
    if duplicates:
        raise ManifestError(f"{path} has duplicate columns: {', '.join(duplicates)}; rename or remove one of each.")
    return names


def has_decimal_commas(path: Path) -> bool:
    """Return whether numbers may have a comma, as spreadsheets write them where semicolons separate columns."""
    with _text(path) as file:
        return _separator(file) == ";"


def read_rows(path: Path, into: ImportedRows) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield each row's place, such as `line 3`, and its cells; empty rows are skipped.

    Rows with other cells than the header are rejected.

    Raises:
        ManifestError: The file is not CSV.
    """
    with _opened(path) as rows:
        _, header = next(rows, (1, []))
        for line, cells in rows:
            place, row = f"line {line}", dict(zip(header, cells, strict=False))
            if len(cells) == len(header):
                yield place, row
            else:
                given = row | ({"": cells[len(header) :]} if len(cells) > len(header) else {})
                into.reject(place, "the number of cells differs from that of the header", job_id=None, given=given)


@contextmanager
def _opened(path: Path) -> Iterator[Iterator[tuple[int, list[str]]]]:
    # The limit is global; without it, cells can hold whole videos as data: URIs.
    before = csv.field_size_limit(sys.maxsize)
    try:
        with _text(path) as file:
            yield _filled(csv.reader(file, strict=True, delimiter=_separator(file)))
    except csv.Error as error:
        raise ManifestError(f"Cannot read {path} as CSV: {error}.") from None
    finally:
        csv.field_size_limit(before)


@contextmanager
def _text(path: Path) -> Iterator[TextIO]:
    try:
        # Spreadsheets may export a byte order mark.
        with path.open(newline="", encoding="utf-8-sig") as file:
            yield file
    except IsADirectoryError:
        raise ManifestError(
            f"{path} is a folder; name a CSV file in it, or say by --layout what it holds: folder for videos."
        ) from None
    except UnicodeDecodeError:
        raise ManifestError(
            f"Cannot read {path} as CSV: it is not a text in UTF-8; save it as one (in spreadsheets: CSV UTF-8)."
        ) from None
    except OSError as error:
        raise ManifestError(f"Cannot read {path} as CSV: {why_unreadable(error)}.") from None


def _separator(file: TextIO) -> str:
    """Return what separates the columns, which spreadsheets choose by the user's country."""
    separator = max(_SEPARATORS, key=file.readline().count)
    file.seek(0)
    return separator


def _filled(reader: Any) -> Iterator[tuple[int, list[str]]]:  # noqa: ANN401 - csv does not name its type
    """Yield rows that are not empty, with the line on which each begins, from 1."""
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader, None)
        except csv.Error as error:
            why = "has a quote that is never closed" if "end of data" in str(error) else f"has a wrong quote ({error})"
            raise csv.Error(f"the row on line {line} {why}; quotes within a cell are doubled") from None
        if cells is None:
            return
        if any(map(str.strip, cells)):
            yield line, cells
