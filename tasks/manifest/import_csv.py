"""Manifests from CSV."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from infra.errors import ManifestError
from reelabel.text import named, pluralize, shorten
from tasks.manifest.cells import parse_list, parse_seconds
from tasks.manifest.csv_rows import has_decimal_commas, read_header, read_rows
from tasks.manifest.rejects import ImportedRows
from tasks.manifest.schema import COLUMNS, REPLACED, REQUIRED

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping
    from pathlib import Path

_TIMES = ("start_s", "end_s")
_LISTS = ("choices", "video_uris")


def import_csv(path: Path, columns: Mapping[str, str] | None = None) -> ImportedRows:
    """Read a CSV file with the manifest's column names, or others that `columns` maps these to; others are noted.

    `choices` is a JSON list (`["yes", "no"]`) or separated by bars (`yes|no`), and so is `video_uris`. Times are in
    seconds, or as `1:30`. An empty cell is null.

    Raises:
        ManifestError: The file is not CSV, or lacks a column.
    """
    header, columns = read_header(path), dict(columns or {})
    columns = _named(path, header, columns)
    found = ImportedRows(source=path, columns=tuple(columns))
    decimal_comma = has_decimal_commas(path)
    for place, cells in read_rows(path, found):
        row = partial(_row, cells, columns, decimal_comma=decimal_comma)
        found.add(place, row, job_id=cells.get(columns.get("job_id", "")), given=cells)
    dropped = [name for name in header if name not in columns.values()]
    if dropped:
        listed = shorten(", ".join(dropped))
        found.notes.append(
            f"Dropped {pluralize(len(dropped), 'column')} of {path}: {listed}.{_meant(dropped, columns)}"
        )
    return found


def require_known(columns: Mapping[str, str]) -> None:
    """Check that a mapping names columns of a manifest.

    Raises:
        ManifestError: It names others.
    """
    unknown = sorted(columns.keys() - COLUMNS.keys())
    swapped = [name for name in unknown if columns[name] in COLUMNS]
    if swapped:
        written, meant = f"{swapped[0]}={columns[swapped[0]]}", f"{columns[swapped[0]]}={swapped[0]}"
        raise ManifestError(f"--column {written} names the manifest's column last; write --column {meant}.")
    if unknown:
        raise ManifestError(f"Unknown manifest columns: {', '.join(unknown)}; a manifest has {', '.join(COLUMNS)}.")


def require_one_video(columns: Mapping[str, str]) -> None:
    """Check that a mapping for a layout, which finds one video a row, names known columns and not several videos.

    Raises:
        ManifestError: It does.
    """
    require_known(columns)
    if "video_uris" in columns:
        raise ManifestError("A layout has one video a row; leave out video_uris, or import a CSV without a layout.")


def _named(path: Path, header: list[str], columns: dict[str, str]) -> dict[str, str]:
    """Return the file's column of each manifest column that it has."""
    require_known(columns)
    names = {name: columns.get(name, name) for name in COLUMNS if columns.get(name, name) in header}
    replaced = frozenset[str]().union(*(REPLACED.get(name, ()) for name in names))
    missing = [columns.get(name, name) for name in (*REQUIRED, *columns) if name not in names and name not in replaced]
    if missing:
        if not header:
            raise ManifestError(f"{path} is empty; its first line must list the columns.")
        raise ManifestError(
            f"{path} lacks the {named('column', [*dict.fromkeys(missing)])}; its first line is: "
            f"{shorten(', '.join(header))}.{_meant(header, names)} The first line must list the columns; to use a "
            "column of another name, add --column NAME=COLUMN, such as prompt=question.",
        )
    return names


def _meant(header: Iterable[str], taken: Container[str]) -> str:
    """Return a question on columns that are the manifest's in another spelling, such as `Job ID`."""
    spelled = {_letters(name): name for name in COLUMNS if name not in taken}
    meant = [f"{spelled[_letters(name)]} by {name}" for name in header if _letters(name) in spelled]
    return f" Did you mean {', '.join(meant)}?" if meant else ""


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, name)).casefold()


def _row(cells: dict[str, str], columns: dict[str, str], *, decimal_comma: bool) -> dict[str, object]:
    return {name: _value(name, cells[theirs], decimal_comma=decimal_comma) for name, theirs in columns.items()}


def _value(name: str, text: str, *, decimal_comma: bool) -> object:
    if not text:
        return None
    if name in _LISTS:
        return parse_list(text, name)
    return parse_seconds(text, name, decimal_comma=decimal_comma) if name in _TIMES else text
