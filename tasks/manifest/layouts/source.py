"""The source files of a benchmark, and what all its readers share."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from infra.errors import ManifestError
from reelabel.integrations.chat_messages import is_valid_unicode
from reelabel.sources.object_info import scheme_of
from reelabel.text import named, pluralize, quoted, shorten, why_unreadable
from tasks.manifest.row_batches import ParquetTable, plain_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tasks.manifest.parquet_pages import ByteFile
    from tasks.manifest.rejects import ImportedRows

_SHOWN = 3
# Of a benchmark's Parquet file, uncompressed: the largest has 2 MiB.
_MOST_BYTES, _BATCH_ROWS = 256 * 1024**2, 10_000
_LETTERED = re.compile(r"^\(?([A-Z])[.):]\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkFiles:
    """A benchmark on disk.

    Attributes:
        path: File or folder with its questions.
        videos: Folder or URI that contains its videos.
        video_map: Optional JSON file that maps a video's name in the questions to its path below `videos`.
        columns: Optional mapping from manifest columns to the table's columns.
    """

    path: Path
    videos: str = ""
    video_map: Path | None = None
    columns: dict[str, str] | None = None

    def uri_of(self, place: str) -> str:
        """Return the URI of a video, given its path below `videos`; URIs and absolute paths are returned unchanged.

        An empty path stays empty: it is no video, and not the folder either.
        """
        is_whole = not place or scheme_of(place) is not None or Path(place).is_absolute()
        return place if is_whole or not self.videos else f"{self.videos.rstrip('/')}/{place}"

    def mapped(self) -> dict[str, str]:
        """Read the video map; empty without one.

        Raises:
            ManifestError: The file is not a JSON object of strings.
        """
        if self.video_map is None:
            return {}
        found = read_json(self.video_map)
        if not isinstance(found, dict) or not all(map(_is_text, found.values())):
            raise ManifestError(f"{self.video_map} must contain a JSON object that maps video names to paths.")
        return found


def read_json(path: Path) -> Any:  # noqa: ANN401 - any JSON value
    """Read a JSON file.

    Raises:
        ManifestError: The file cannot be read, or is not JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except RecursionError:
        raise ManifestError(f"Cannot read {path} as JSON: it is nested too deeply.") from None
    except (OSError, ValueError) as error:
        raise ManifestError(f"Cannot read {path} as JSON: {why_unreadable(error)}.") from None


def read_parquet(path: Path, types: Mapping[str, pl.DataType], *, layout: str) -> pl.DataFrame:
    """Read the columns of a layout from a Parquet file, as their types.

    Raises:
        ManifestError: The file cannot be read, or has a different layout.
    """
    table = read_columns(path, list(types), uri=str(path), layout=layout)
    try:
        return table.select(pl.col(name).cast(dtype) for name, dtype in types.items())
    except pl.exceptions.PolarsError as error:
        why = str(error).splitlines()[0]
        raise ManifestError(f"{path} has columns whose types differ from {layout}'s: {why}.") from None


def read_columns(source: Path | ByteFile, columns: Sequence[str], *, uri: str, layout: str) -> pl.DataFrame:
    """Read columns of a Parquet file, of bounded size.

    Raises:
        ManifestError: The file cannot be read, lacks a column, or is too large.
    """
    read, left_bytes = [], _MOST_BYTES
    try:
        with ParquetTable(source, uri=uri) as table:
            require_columns(uri, table.names, columns, layout=layout)
            read.append(pl.from_arrow(plain_schema(table.file.schema_arrow).empty_table().select(columns)))
            for batch in table.batches(columns, most_rows=_BATCH_ROWS):
                left_bytes -= batch.nbytes
                if left_bytes < 0:
                    raise ManifestError(f"{uri} has more than {_MOST_BYTES >> 20} MiB of {layout}'s columns; split it.")
                read.append(pl.from_arrow(batch))
    except (pa.ArrowException, OSError) as error:
        raise ManifestError(f"Cannot read {uri} as Parquet: {why_unreadable(error)}.") from None
    return pl.concat(map(pl.DataFrame, read))


def require_columns(path: Path | str, found: Iterable[str], wanted: Iterable[str], *, layout: str) -> None:
    """Check that a file has the columns of a layout.

    Raises:
        ManifestError: Columns are missing; the message lists them.
    """
    names = list(found)
    missing = [name for name in wanted if name not in names]
    if missing:
        present = shorten(", ".join(names)) or "none"
        raise ManifestError(
            f"{path} lacks the {named('column', missing)} required for {layout}; its columns are: {present}."
        )


def require_texts(values: Mapping[str, object]) -> None:
    """Check that JSON values are strings.

    Raises:
        ValueError: A value is not a valid string; the message names it.
    """
    for name, value in values.items():
        if not _is_text(value):
            raise ValueError(f"{name} {quoted(value)} is not a valid string")


def merge_repeated(choices: Sequence[str], answer: str | None) -> list[str]:
    """Drop later copies of a wrong choice.

    Raises:
        ValueError: The correct choice is repeated, or may be, since it is unknown.
    """
    repeated = {choice for choice in choices if choices.count(choice) > 1}
    if repeated and (answer is None or answer in repeated):
        which = "the correct answer" if answer in repeated else "a choice, perhaps the correct one,"
        raise ValueError(f"{which} is repeated among the choices: {quoted(answer or min(repeated))}")
    return list(dict.fromkeys(choices))


def note_merged(found: ImportedRows, merged: Sequence[str]) -> None:
    """Note the places of rows whose choices were merged."""
    if merged:
        such = f" (first: {', '.join(merged[:_SHOWN])})"
        found.notes.append(
            f"Merged repeated wrong choices in {pluralize(len(merged), 'question')} of {found.source}{such}."
        )


def strip_letters(choices: Sequence[str]) -> list[str]:
    """Remove prefixes such as `A. ` and `(B) ` from choices, if all have one, in alphabetical order."""
    # Otherwise the letters are part of the choices, as in `U.S.` and `J. Smith`.
    found = [match[1] for choice in choices if (match := _LETTERED.match(choice))]
    return [strip_letter(choice) for choice in choices] if found == [*ascii_uppercase[: len(choices)]] else [*choices]


def strip_letter(text: str) -> str:
    """Remove a prefix such as `A. ` or `(B) `."""
    return _LETTERED.sub("", text)


def choice_at(choices: Sequence[str], number: int) -> str:
    """Return the choice at a position.

    Raises:
        ValueError: The position is out of range.
    """
    if not 0 <= number < len(choices):
        raise ValueError(f"answer {number} is out of range for {len(choices)} choices, counted from 0")
    return choices[number]


def _is_text(value: object) -> bool:
    return isinstance(value, str) and is_valid_unicode(value)
