"""The rows of a CSV file, with their lines."""

from __future__ import annotations

import csv
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from infra.errors import ManifestError
from reelabel.wording import why_unreadable

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
    with _opened(path) as reader:
        names = list(reader.fieldnames or ())
    duplicates = sorted({name for name in names if names.count(name) > 1})
    if duplicates:
        raise ManifestError(f"{path} has duplicate columns: {', '.join(duplicates)}; rename or remove one of each.")
    return names


def read_rows(path: Path, into: ImportedRows) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield each row's place, such as `line 3`, and its cells; rows with other cells than the header are rejected.

    Raises:
        ManifestError: The file is not CSV.
    """
    with _opened(path) as reader:
        for cells in reader:
            place = f"line {reader.line_num}"
            # DictReader collects surplus cells under the key None, and fills missing cells with None.
            if None in cells or None in cells.values():
                into.reject(place, "the number of cells differs from that of the header", job_id=None, given=cells)
            else:
                yield place, cells


@contextmanager
def _opened(path: Path) -> Iterator[csv.DictReader[str]]:
    # The limit is global; without it, cells can hold whole videos as data: URIs.
    before = csv.field_size_limit(sys.maxsize)
    try:
        # Spreadsheets may export a byte order mark, and, by the user's country, semicolons.
        with path.open(newline="", encoding="utf-8-sig") as file:
            separator = max(_SEPARATORS, key=file.readline().count)
            file.seek(0)
            yield csv.DictReader(file, strict=True, delimiter=separator)
    except IsADirectoryError:
        raise ManifestError(
            f"{path} is a folder; name a CSV file in it, or say by --layout what it holds: folder for videos."
        ) from None
    except UnicodeDecodeError:
        raise ManifestError(
            f"Cannot read {path} as CSV: it is not a text in UTF-8; save it as one (in spreadsheets: CSV UTF-8)."
        ) from None
    except (OSError, csv.Error) as error:
        raise ManifestError(f"Cannot read {path} as CSV: {why_unreadable(error)}.") from None
    finally:
        csv.field_size_limit(before)
