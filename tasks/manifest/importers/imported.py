"""Rows of other formats that become rows of a manifest, and what the readers of these formats share."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any

import polars as pl

from infra.errors import ManifestError
from reelabel.integrations.chat_messages import is_valid_unicode
from reelabel.sources.object_info import scheme_of
from reelabel.text import named, quoted, read_error, shorten
from tasks.manifest.check import cast_columns, check_manifest, check_rows, find_duplicates
from tasks.manifest.rejects import VIOLATIONS, list_violations, reject_rows, shorten_list, without_rows
from tasks.manifest.row_batches import UNREADABLE, ParquetTable, plain_schema
from tasks.manifest.schema import COLUMNS, ROW

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tasks.manifest.parquet_pages import ByteFile

_REJECTED = ("place", "job_id", "reason", "given")
# Uncompressed columns of one Parquet file; that of the largest benchmark has 2 MiB.
_MAX_BYTES, _BATCH_ROWS = 256 * 1024**2, 10_000
_LETTERED = re.compile(r"^\(?([A-Z])[.):]\s*")


@dataclass(slots=True, kw_only=True)
class ImportedRows:
    """Rows read from a file or folder of another format."""

    source: Path | str
    columns: Sequence[str]  # the manifest's columns that they fill
    # The rows that could be read, as values by column.
    rows: list[dict[str, Any]] = field(default_factory=list, repr=False)
    # The position of each of them in the source, such as `line 3`.
    places: list[str] = field(default_factory=list, repr=False)
    notes: list[str] = field(default_factory=list)  # sentences on what was changed or left out
    _unread: list[tuple[str, str, str, object]] = field(default_factory=list, repr=False)

    def add(self, place: str, read: Callable[[], dict[str, Any]], *, job_id: object, given: object) -> None:
        """Add the row that `read` returns, or reject `given`, the row of the source, if it raises ValueError.

        So it does for integers that are too large for a float, which are an OverflowError.
        """
        try:
            row = read()
            _check_texts(row)
        except (ValueError, OverflowError) as error:
            self.reject(place, str(error), job_id=job_id, given=given)
        else:
            self.rows.append(row)
            self.places.append(place)

    def reject(self, place: str, reason: str, *, job_id: object, given: object) -> None:
        self._unread.append((place, "" if job_id is None else _escaped(str(job_id)), f"{reason}.", given))

    @property
    def frame(self) -> pl.DataFrame:
        return pl.DataFrame(self.rows, schema={name: COLUMNS[name] for name in self.columns})

    def valid(self) -> pl.DataFrame:
        """Return all rows.

        Raises:
            ManifestError: A row is invalid; the message lists all faults, with counts and first rows.
        """
        unread = [(number, job_id, reason, None, 1) for number, (_, job_id, reason, _) in enumerate(self._unread)]
        lines = list_violations(
            pl.DataFrame(unread, schema=VIOLATIONS, orient="row"), lambda number: self._unread[number][0]
        )
        if self.rows or not unread:
            lines += check_manifest(self.frame, lambda row: self.places[row])
        if lines:
            raise ManifestError(f"{self.source} cannot become a manifest:", shorten_list(lines))
        return self.frame

    def divided(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return the valid rows, and the others as `place`, `job_id`, `reason` and `given`, which is JSON.

        Raises:
            ManifestError: No row is valid.
        """
        numbered = cast_columns(self.frame)[0].with_row_index(ROW)
        found = check_rows(numbered)[1]
        found = pl.concat([found, find_duplicates(without_rows(numbered, found), keep_first=True)])
        good = without_rows(self.frame.with_row_index(ROW), found).drop(ROW)
        if good.is_empty():
            self.valid()  # raises
        rejected = [
            (self.places[row], job_id or "", reason, self.rows[row])
            for row, job_id, reason in reject_rows(found).rows()
        ]
        cells = [
            (place, job_id, reason, _escaped(json.dumps(given, ensure_ascii=False, default=str)))
            for place, job_id, reason, given in [*self._unread, *rejected]
        ]
        return good, pl.DataFrame(cells, schema=dict.fromkeys(_REJECTED, pl.String), orient="row")


def _check_texts(row: dict[str, Any]) -> None:
    for name, value in row.items():
        texts = (each for each in (value if isinstance(value, list) else [value]) if isinstance(each, str))
        if not all(map(is_valid_unicode, texts)):
            raise ValueError(f"{name} contains an unpaired surrogate, which is not a valid character")


def _escaped(text: str) -> str:
    """Escape unpaired surrogates, which no file can hold."""
    return text.encode(errors="backslashreplace").decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionFiles:
    """A local file or folder of questions about videos that may be elsewhere."""

    path: Path
    videos: str = ""  # folder or URI that contains the videos
    video_map: Path | None = None  # JSON file that maps a video's name in the questions to its path below `videos`
    columns: dict[str, str] | None = None  # the table's columns by the manifest's columns

    def uri_of(self, place: str) -> str:
        """Return the URI of a path below `videos`; URIs, absolute paths and empty paths are returned unchanged."""
        is_whole = not place or scheme_of(place) is not None or Path(place).is_absolute()
        return place if is_whole or not self.videos else f"{self.videos.rstrip('/')}/{place}"

    def mapped(self) -> dict[str, str]:
        if self.video_map is None:
            return {}
        found = read_json(self.video_map)
        if not isinstance(found, dict) or not all(map(is_text, found.values())):
            raise ManifestError(f"{self.video_map} must contain a JSON object that maps video names to paths.")
        return found


def read_json(path: Path) -> Any:  # noqa: ANN401 - any JSON value
    """Read a JSON file.

    Raises:
        ManifestError: It cannot be read, or is not JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except RecursionError:
        raise ManifestError(f"Cannot read {path} as JSON: it is nested too deeply.") from None
    except (OSError, ValueError) as error:
        raise ManifestError(f"Cannot read {path} as JSON: {read_error(error)}.") from None


def read_columns(source: Path | ByteFile, columns: Sequence[str], *, uri: str, layout: str) -> pl.DataFrame:
    """Read columns of a Parquet file into memory.

    Raises:
        ManifestError: The file cannot be read, lacks a column, or has more than 256 MiB of these columns.
    """
    read, left_bytes = [], _MAX_BYTES
    try:
        with ParquetTable(source, uri=uri) as table:
            require_columns(uri, table.names, columns, layout=layout)
            read.append(pl.from_arrow(plain_schema(table.file.schema_arrow).empty_table().select(columns)))
            for batch in table.batches(columns, max_rows=_BATCH_ROWS):
                left_bytes -= batch.nbytes
                if left_bytes < 0:
                    raise ManifestError(f"{uri} has more than {_MAX_BYTES >> 20} MiB of {layout}'s columns; split it.")
                batch.validate(full=True)
                read.append(pl.from_arrow(batch))
    except UNREADABLE as error:
        raise ManifestError(f"Cannot read {uri} as Parquet: {read_error(error)}.") from None
    except (pl.exceptions.PanicException, pl.exceptions.ComputeError):  # for example, of an unknown time zone
        raise ManifestError(f"{uri} has a column of {layout} whose type cannot be read.") from None
    return pl.concat(map(pl.DataFrame, read))


def require_columns(path: Path | str, found: Iterable[str], wanted: Iterable[str], *, layout: str) -> None:
    names = list(found)
    missing = [name for name in wanted if name not in names]
    if missing:
        present = shorten(", ".join(names)) or "none"
        raise ManifestError(
            f"{path} lacks the {named('column', missing)} required for {layout}; its columns are: {present}."
        )


def merge_repeated(choices: Sequence[str], answer: str | None) -> list[str]:
    """Remove duplicates of wrong choices.

    Raises:
        ValueError: A choice is repeated that is, or may be, the correct one.
    """
    repeated = {choice for choice in choices if choices.count(choice) > 1}
    if repeated and (answer is None or answer in repeated):
        which = "the correct answer" if answer in repeated else "a choice, perhaps the correct one,"
        raise ValueError(f"{which} is repeated among the choices: {quoted(answer or min(repeated))}")
    return list(dict.fromkeys(choices))


def strip_letters(choices: Sequence[str]) -> list[str]:
    """Remove prefixes such as `A. ` and `(B) ` from choices, if all have one, in alphabetical order."""
    # Otherwise the letters are part of the choices, as in `U.S.` and `J. Smith`.
    found = [match[1] for choice in choices if (match := _LETTERED.match(choice))]
    return [strip_letter(choice) for choice in choices] if found == [*ascii_uppercase[: len(choices)]] else [*choices]


def strip_letter(text: str) -> str:
    return _LETTERED.sub("", text)


def is_text(value: object) -> bool:
    """Return whether a JSON value is a string without unpaired surrogates."""
    return isinstance(value, str) and is_valid_unicode(value)
