"""Reads banks: label sets from a text file with one text per line, CSV or Parquet."""

from __future__ import annotations

import csv
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from infra.errors import ManifestError
from reelabel import arrow as pa
from reelabel.errors import ConfigurationError
from reelabel.text import escape_controls, first_control, pluralize, read_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

SHIPPED = Path(__file__).parent / "banks"
PLACES, ACTIVITIES = SHIPPED / "places.txt", SHIPPED / "activities.txt"

_COLUMN = "text"
MAX_BYTES = 64 * 1024**2
_MAX_TEXTS = 100_000
_MAX_CHARACTERS = 2000
_MAX_FAULTS = 10
_SHOWN = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Bank:
    """Distinct texts of one file, at least one."""

    path: Path
    texts: tuple[str, ...] = field(repr=False)  # without surrounding whitespace
    lines: tuple[int, ...] = field(repr=False)  # line of each text, or its row in Parquet, from 1

    def check_lengths(self, tokens: Sequence[int], max_tokens: int) -> None:
        """Raise a ConfigurationError that lists the lines of texts with more tokens than the text encoder takes."""
        _refuse(
            self.path,
            [
                f"line {line}: {count} tokens, but the model takes at most {max_tokens}; shorten it"
                for line, count in zip(self.lines, tokens, strict=True)
                if count > max_tokens
            ],
        )


def read_bank(path: Path) -> Bank:
    """Read a bank from a CSV or Parquet file, by its suffix, or from any other as text.

    A text file has one text per line. CSV and Parquet have the column `text`, or only one column.

    Raises:
        ConfigurationError: The file cannot be read or has no texts, or texts are empty, repeated or too long; the
            message lists the lines.
    """
    try:
        _check_size(path, path.stat().st_size)
        found = list(_READERS.get(path.suffix.lower(), _read_text)(path))
    except UnicodeDecodeError:
        raise ConfigurationError(f"The bank {path} is not UTF-8 text; save it as UTF-8, CSV or Parquet.") from None
    except ManifestError as error:
        raise ConfigurationError(str(error)) from None
    except (OSError, csv.Error, pa.ArrowException) as error:
        raise ConfigurationError(f"Cannot read the bank {path}: {read_error(error)}.") from None
    return _checked(path, found)


def bank_of_texts(name: str, texts: Sequence[str]) -> Bank:
    """Return a bank of texts, numbered from 1; raises like `read_bank`."""
    return _checked(Path(name), [(number, text.strip()) for number, text in enumerate(texts, 1)])


def _checked(path: Path, found: list[tuple[int, str]]) -> Bank:
    if not found:
        raise ConfigurationError(f"The bank {path} has no texts; write one per line.")
    if len(found) > _MAX_TEXTS:
        raise ConfigurationError(_too_many(path, len(found)))
    _refuse(path, list(_faults(found)))
    return Bank(path=path, texts=tuple(text for _, text in found), lines=tuple(line for line, _ in found))


def _too_many(path: Path, count: int) -> str:
    return f"The bank {path} has {count:,} texts; the maximum is {_MAX_TEXTS:,}."


def _faults(found: list[tuple[int, str]]) -> Iterator[str]:
    first: dict[str, int] = {}
    for line, text in found:
        if not text:
            yield f"line {line} is empty"
        elif len(text) > _MAX_CHARACTERS:
            yield f"line {line} has more than {_MAX_CHARACTERS:,} characters"
        elif hidden := first_control(text):
            yield f"line {line} has the character {hidden}, which cannot be printed"
        elif (key := text.lower()) in first:  # encoders are given lower case
            yield f"line {line} repeats line {first[key]}: {escape_controls(text[:_SHOWN])}"
        else:
            first[key] = line


def _refuse(path: Path, faults: list[str]) -> None:
    if not faults:
        return
    more = f", and {pluralize(len(faults) - _MAX_FAULTS, 'more line')}" if len(faults) > _MAX_FAULTS else ""
    raise ConfigurationError(f"The bank {path} cannot be used: {'; '.join(faults[:_MAX_FAULTS])}{more}.")


def _check_size(path: Path, size_bytes: int) -> None:
    if size_bytes > MAX_BYTES:
        raise ConfigurationError(f"The bank {path} is larger than {MAX_BYTES >> 20} MiB; shorten it.")


def _read_text(path: Path) -> Iterator[tuple[int, str]]:
    with path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)  # a pipe or a device has no known size
    _check_size(path, len(data))
    lines = data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    while lines and not lines[-1].strip():  # the newline at the end
        lines.pop()
    yield from enumerate(map(str.strip, lines), 1)


def _read_csv(path: Path) -> Iterator[tuple[int, str]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.DictReader(file)
        column = _choose_column(path, list(rows.fieldnames or ()))
        for row in rows:
            if None in row:
                raise ConfigurationError(
                    f"Line {rows.line_num} of the bank {path} has more columns than its first line; put texts with "
                    "commas in quotation marks."
                )
            yield rows.line_num, (row[column] or "").strip()


def _read_parquet(path: Path) -> Iterator[tuple[int, str]]:
    from tasks.manifest.row_batches import ParquetTable, plain_schema, shorten_texts  # noqa: PLC0415 - pyarrow is slow to import

    with ParquetTable(path, uri=f"The bank {path}") as table:
        schema, count = plain_schema(table.file.schema_arrow), table.file.metadata.num_rows
        column = _choose_column(path, schema.names)
        kind = schema.field(column).type
        if kind not in (pa.string(), pa.large_string()):
            raise ConfigurationError(
                f"The column {escape_controls(column)} of the bank {path} is {kind}; it must hold strings."
            )
        if count > _MAX_TEXTS:
            raise ConfigurationError(_too_many(path, count))
        batches = table.batches([column], max_rows=_MAX_TEXTS, max_characters={column: _MAX_CHARACTERS})
        texts = (text for batch in batches for text in shorten_texts(batch[column], _MAX_CHARACTERS).to_pylist())
        yield from enumerate(((text or "").strip() for text in texts), 1)


def _choose_column(path: Path, names: Sequence[str]) -> str:
    if _COLUMN in names:
        return _COLUMN
    if len(names) == 1:
        if ";" in names[0] or "\t" in names[0]:
            raise ConfigurationError(
                f"The columns of the bank {path} are not separated by commas; export it with commas."
            )
        return names[0]
    raise ConfigurationError(f"The bank {path} has no column '{_COLUMN}'; give that name to the column with the texts.")


_READERS: Mapping[str, Callable[[Path], Iterator[tuple[int, str]]]] = {".csv": _read_csv, ".parquet": _read_parquet}
