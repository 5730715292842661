"""Rows of a file that cannot become jobs, and why."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl

from infra.errors import ManifestError
from infra.formulas import without_formulas
from tasks.manifest.check import check_manifest, check_rows, conform_columns, find_later_duplicates
from tasks.manifest.schema import COLUMNS, ROW, row_fault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from tasks.manifest.schema import Fault

REJECTED_FILE = "rejected.csv"
REJECTS = pl.Schema({ROW: pl.UInt32, "job_id": pl.String, "reason": pl.String})
_REJECTED = ("place", "job_id", "reason", "given")
_MAX_FAULTS = 20


def reject_rows(frame: pl.DataFrame, faults: Iterable[Fault]) -> pl.DataFrame:
    """Return the rows with faults: `row`, `job_id`, and `reason`, which joins all faults of the row."""
    broken = [fault.rows.alias(ROW).to_frame().with_columns(reason=pl.lit(fault.rule)) for fault in faults]
    if not broken:
        return pl.DataFrame(schema=REJECTS)
    reasons = pl.concat(broken).group_by(ROW, maintain_order=True).agg(pl.col("reason").str.join(" "))
    return frame.select(ROW, "job_id").join(reasons, on=ROW, maintain_order="left")


def rejected_csv(rejects: pl.DataFrame) -> bytes:
    """Format rejected rows as CSV that is safe to open in a spreadsheet."""
    return without_formulas(rejects).write_csv().encode()


def list_faults(lines: Sequence[str]) -> list[str]:
    """Return the first faults, and how many kinds of them are left out if there are many."""
    more = len(lines) - _MAX_FAULTS
    return [*lines[:_MAX_FAULTS], *([f"and {more:,} more kinds of faults"] if more > 0 else [])]


def reject_repeated(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the rows, as `reject_rows` does, whose id an earlier one has."""
    return reject_rows(frame, find_later_duplicates(frame))


def without_rows(frame: pl.DataFrame, rejects: pl.DataFrame) -> pl.DataFrame:
    """Return the rows that were not rejected."""
    return frame.filter(~pl.col(ROW).is_in(rejects[ROW].implode()))


@dataclass(slots=True, kw_only=True)
class ImportedRows:
    """Rows read from a file of another format.

    Attributes:
        source: The file or folder.
        columns: The manifest's columns that it fills.
        rows: Those that could be read, as values by column.
        places: Where each of them is in the source, such as `line 3`.
        notes: What was changed or left out, as sentences.
    """

    source: Path | str
    columns: Sequence[str]
    rows: list[dict[str, Any]] = field(default_factory=list, repr=False)
    places: list[str] = field(default_factory=list, repr=False)
    notes: list[str] = field(default_factory=list)
    _unread: list[tuple[str, str, str, object]] = field(default_factory=list, repr=False)

    def add(self, place: str, read: Callable[[], dict[str, Any]], *, job_id: object, given: object) -> None:
        """Add the row that `read` returns; it raises ValueError, with a clause, if the row cannot be used.

        `given` is the row as the source has it.
        """
        try:
            row = read()
        except ValueError as error:
            self.reject(place, str(error), job_id=job_id, given=given)
        else:
            self.rows.append(row)
            self.places.append(place)

    def reject(self, place: str, reason: str, *, job_id: object, given: object) -> None:
        """Add a row that cannot be used."""
        self._unread.append((place, "" if job_id is None else str(job_id), f"{reason}.", given))

    @property
    def frame(self) -> pl.DataFrame:
        """The rows that could be read, valid or not."""
        return pl.DataFrame(self.rows, schema={name: COLUMNS[name] for name in self.columns})

    def valid(self) -> pl.DataFrame:
        """Return all rows.

        Raises:
            ManifestError: Some cannot be used; the message lists all faults, with counts and first rows.
        """
        faults = [*self._unread_faults(), *self._faults()]
        if faults:
            raise ManifestError(f"{self.source} cannot become a manifest:", list_faults(faults))
        return self.frame

    def divided(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return the rows that can be used, and the others: `place`, `job_id`, `reason`, and `given`, as JSON.

        Raises:
            ManifestError: No row can be used.
        """
        numbered = conform_columns(self.frame)[0].with_row_index(ROW)
        bad = reject_rows(numbered, check_rows(numbered)[1])
        bad = pl.concat([bad, reject_repeated(without_rows(numbered, bad))])
        good = without_rows(self.frame.with_row_index(ROW), bad).drop(ROW)
        if good.is_empty():
            return self.valid(), bad  # raises: none is left
        rejected = [(self.places[row], job_id or "", reason, self.rows[row]) for row, job_id, reason in bad.rows()]
        cells = [
            (place, job_id, reason, json.dumps(given, ensure_ascii=False, default=str))
            for place, job_id, reason, given in [*self._unread, *rejected]
        ]
        return good, pl.DataFrame(cells, schema=dict.fromkeys(_REJECTED, pl.String), orient="row")

    def _unread_faults(self) -> list[str]:
        grouped: dict[str, list[tuple[int, object]]] = {}
        for number, (_, job_id, reason, _) in enumerate(self._unread):
            grouped.setdefault(reason, []).append((number, job_id))
        return [
            row_fault(reason, "job_id", rows).describe(lambda number: self._unread[number][0])
            for reason, rows in grouped.items()
        ]

    def _faults(self) -> list[str]:
        if not self.rows and self._unread:
            return []
        return [fault.describe(lambda row: self.places[row]) for fault in check_manifest(self.frame)]
