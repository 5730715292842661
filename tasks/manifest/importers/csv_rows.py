"""Import from CSV files, whose columns are a manifest's or are mapped to these."""

from __future__ import annotations

import csv
import sys
from contextlib import contextmanager
from functools import partial
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any, TextIO

from infra.errors import ManifestError
from reelabel.text import named, pluralize, quoted, read_error, shorten
from tasks.manifest.cells import parse_list, parse_seconds
from tasks.manifest.importers.imported import ImportedRows, merge_repeated, require_columns, strip_letter, strip_letters
from tasks.manifest.schema import COLUMNS, REPLACED, REQUIRED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from tasks.manifest.importers.imported import QuestionFiles

# The first, unless the header has more of another.
_SEPARATORS = ",;\t"
_TIMES, _LISTS = ("start_s", "end_s"), ("choices", "video_uris")
_TEXT, _LETTER, _NUMBER = "text", "letter", "number"
_KINDS = (_TEXT, _LETTER, _NUMBER)
_UNAMBIGUOUS = {_LETTER: "by number, from 0", _NUMBER: "by letter, from A"}
_JOINER = "+"


def import_csv(path: Path, columns: Mapping[str, str] | None = None) -> ImportedRows:
    """Read a CSV file with the manifest's columns, or others that `columns` maps these to; note those left out.

    `choices` and `video_uris` are JSON lists (`["yes", "no"]`) or separated by bars (`yes|no`). Times are in seconds,
    or as `1:30`. An empty cell is null.

    Raises:
        ManifestError: The file is not CSV, or lacks a column.
    """
    header = read_header(path)
    columns = _named(path, header, columns or {})
    parts = {name: [column] for name, column in columns.items()}
    found, decimal_comma = ImportedRows(source=path, columns=tuple(columns)), has_decimal_commas(path)
    for place, cells in read_rows(path, found):
        read = partial(_row, cells, parts, decimal_comma=decimal_comma)
        found.add(place, read, job_id=cells.get(columns.get("job_id", "")), given=cells)
    dropped = [name or "(unnamed)" for name in header if name not in columns.values()]
    if dropped:
        found.notes.append(
            f"Dropped {pluralize(len(dropped), 'column')} of {path}: {shorten(', '.join(dropped))}; a manifest has "
            f"{', '.join(COLUMNS)}."
        )
    return found


def require_known(columns: Mapping[str, str]) -> None:
    if unknown := sorted(columns.keys() - COLUMNS.keys()):
        raise ManifestError(
            f"Unknown manifest columns: {', '.join(unknown)}; write --column NAME=COLUMN, where NAME is one of "
            f"{', '.join(COLUMNS)}."
        )


def require_one_video(columns: Mapping[str, str]) -> None:
    """Check that a mapping names known columns, without `video_uris`: a layout has one video a row."""
    require_known(columns)
    if "video_uris" in columns:
        raise ManifestError("A layout has one video a row; leave out video_uris, or import a CSV without a layout.")


def _named(path: Path, header: list[str], columns: Mapping[str, str]) -> dict[str, str]:
    require_known(columns)
    names = {name: columns.get(name, name) for name in COLUMNS if columns.get(name, name) in header}
    replaced = frozenset[str]().union(*(REPLACED.get(name, ()) for name in names))
    missing = [columns.get(name, name) for name in (*REQUIRED, *columns) if name not in names and name not in replaced]
    if missing:
        if not header:
            raise ManifestError(f"{path} is empty; its first line must list the columns.")
        raise ManifestError(
            f"{path} lacks the {named('column', [*dict.fromkeys(missing)])}; its first line is: "
            f"{shorten(', '.join(header))}. The first line must list the columns; to use a column of another name, add "
            "--column NAME=COLUMN, such as prompt=question.",
        )
    return names


def read_mapped(source: QuestionFiles) -> ImportedRows:
    """Read a CSV file as mapped by `source.columns`.

    A manifest column maps to one column of the file, or to several joined by `+`. Several columns of `choices` have one
    choice each, while a single one has all of them, separated by bars or as a JSON list; the values of other columns
    are joined by `_`. Answers are the texts, letters or numbers (from 0) of choices, whichever fits all rows.

    Raises:
        ManifestError: The mapping lacks a required column, or the file one of the mapping.
    """
    columns = source.columns or {}
    require_one_video(columns)
    missing = [name for name in (*REQUIRED, "choices") if name not in columns]
    if missing:
        raise ManifestError(f"No columns of {source.path} are mapped to {', '.join(missing)}; add {missing[0]}=COLUMN.")
    parts = {name: column.split(_JOINER) for name, column in columns.items()}
    needed = [each for names in parts.values() for each in names]
    require_columns(source.path, read_header(source.path), needed, layout="this mapping")
    places = source.mapped()
    found, decimal_comma = ImportedRows(source=source.path, columns=tuple(columns)), has_decimal_commas(source.path)
    for place, cells in read_rows(source.path, found):
        read = partial(_mapped_row, cells, parts, source, places, decimal_comma=decimal_comma)
        job_id = _value("job_id", cells, parts["job_id"], decimal_comma=decimal_comma)
        found.add(place, read, job_id=job_id, given=cells)
    if "answer" in parts:
        jobs, at = found.rows, found.places
        found.rows, found.places = [], []
        possible = [job["answer"][1] for job in jobs if job["answer"] is not None]
        notations = [kind for kind in _KINDS if all(kind in named for named in possible)]
        for place, job in zip(at, jobs, strict=True):
            found.add(place, partial(_resolved, job, notations), job_id=job["job_id"], given=job)
    return found


def _row(cells: dict[str, str], columns: Mapping[str, list[str]], *, decimal_comma: bool) -> dict[str, Any]:
    return {name: _value(name, cells, names, decimal_comma=decimal_comma) for name, names in columns.items()}


def _value(name: str, cells: dict[str, str], names: list[str], *, decimal_comma: bool) -> object:
    if name == "choices" and len(names) > 1:
        return _choices(cells, names)
    text = "_".join(filter(None, map(cells.__getitem__, names)))
    if not text:
        return None
    if name in _LISTS:
        return parse_list(text, names[0])
    return parse_seconds(text, name, decimal_comma=decimal_comma) if name in _TIMES else text


def _choices(cells: dict[str, str], names: list[str]) -> list[str]:
    texts = [cells[name] for name in names]
    while texts and not texts[-1].strip():
        texts.pop()
    for name, text in zip(names, texts, strict=False):
        if not text.strip():
            # Skipping it would change the letters and numbers of later choices.
            raise ValueError(f"column {name} is empty, but a later choice is not; fill it in")
    return texts


def _mapped_row(
    cells: dict[str, str],
    columns: Mapping[str, list[str]],
    source: QuestionFiles,
    places: dict[str, str],
    *,
    decimal_comma: bool,
) -> dict[str, Any]:
    job = _row(cells, columns, decimal_comma=decimal_comma)
    video = job["video_uri"] or ""
    job |= {"video_uri": source.uri_of(places.get(video, video)), "choices": strip_letters(job["choices"] or [])}
    if job.get("answer") is not None:
        job["answer"] = job["answer"], _meanings(job["answer"], job["choices"])
    return job


def _meanings(text: str, choices: Sequence[str]) -> dict[str, str]:
    """Return the choice that an answer means, by each notation in which it means one."""
    # The upper case of some letters has two characters, such as that of the German sharp s.
    letter = ascii_uppercase.find(text.upper()) if len(text) == 1 else -1
    number = int(text) if text.isdecimal() else -1
    named = {kind: choices[at] for kind, at in ((_LETTER, letter), (_NUMBER, number)) if 0 <= at < len(choices)}
    for spelling in (strip_letter(text), text):
        if spelling in choices:
            named[_TEXT] = spelling
    if not named:
        raise ValueError(f"the answer {quoted(text)} is not a choice, or the letter or number (from 0) of one")
    return named


def _resolved(job: dict[str, Any], notations: Sequence[str]) -> dict[str, Any]:
    """Replace the possible meanings of an answer by its meaning in the notations that fit all answers.

    In a column of numbers, `2` is a number even if a choice is called 2.
    """
    answer: str | None = None
    if job.get("answer") is not None:
        text, possible = job["answer"]
        named = {kind: possible[kind] for kind in notations or _KINDS if kind in possible}
        answer = next(iter(named.values()))
        if len(set(named.values())) > 1:
            kind = _LETTER if _LETTER in named else _NUMBER
            raise ValueError(
                f"the answer {quoted(text)} is ambiguous: it is a choice, and the {kind} of another, "
                f"{quoted(named[kind])}; give all answers {_UNAMBIGUOUS[kind]}"
            )
    return job | {"answer": answer, "choices": merge_repeated(job["choices"], answer)}


def read_header(path: Path) -> list[str]:
    """Read the column names of a CSV file with commas, semicolons or tabs."""
    with _opened(path) as rows:
        _, names = next(rows, (1, []))
    # Spreadsheets export empty columns without a name.
    duplicates = sorted({name for name in names if name and names.count(name) > 1})
    if duplicates:
        raise ManifestError(f"{path} has duplicate columns: {', '.join(duplicates)}; rename or remove one of each.")
    return names


def has_decimal_commas(path: Path) -> bool:
    """Whether numbers may have a decimal comma: spreadsheets write it where semicolons separate columns."""
    with _text(path) as file:
        return _separator(file) == ";"


def read_rows(path: Path, into: ImportedRows) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the place of each row that is not empty, such as `line 3`, and its cells by column.

    Rows with more or fewer cells than the header are rejected.
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
        raise ManifestError(f"Cannot read {path} as CSV: {read_error(error)}.") from None


def _separator(file: TextIO) -> str:
    """Return the separator of the columns, which spreadsheets choose by the user's country."""
    separator = max(_SEPARATORS, key=file.readline().count)
    file.seek(0)
    return separator


def _filled(reader: Any) -> Iterator[tuple[int, list[str]]]:  # noqa: ANN401 - csv does not name its type
    """Yield the rows that are not empty, each with the line on which it begins, from 1."""
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
