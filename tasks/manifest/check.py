"""Everything that can be wrong with a manifest, found by Polars in one pass over its columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from tasks.manifest.schema import COLUMNS, REQUIRED, SCHEMES

if TYPE_CHECKING:
    from collections.abc import Iterator

_SHOWN_ROWS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One rule that some rows break.

    Attributes:
        rule: What is wrong, as a sentence.
        count: Rows that break it; 0 where it concerns the file as a whole.
        first_rows: Row numbers from 0 and values of the first few.
    """

    rule: str
    count: int = 0
    first_rows: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Say it with its count and first rows."""
        if not self.count:
            return self.rule
        return f"{self.rule} {self.count:,} row{'s' * (self.count > 1)}, first {', '.join(self.first_rows)}."


def conform(frame: pl.DataFrame) -> tuple[pl.DataFrame, list[Fault]]:
    """Bring a frame to the schema's columns and types; unknown columns are dropped.

    Returns:
        The frame with every column of the schema, absent optional ones null, and the columns' faults.
    """
    faults = [Fault(rule=f"Column {name} is missing.") for name in REQUIRED if name not in frame.columns]
    columns: list[pl.Expr] = []
    for name, dtype in COLUMNS.items():
        if name not in frame.columns:
            columns.append(pl.lit(None, dtype=dtype).alias(name))
            continue
        found = frame.schema[name]
        if not _casts(found, dtype):
            faults.append(Fault(rule=f"Column {name} has type {found}, not {dtype}."))
            columns.append(pl.lit(None, dtype=dtype).alias(name))
            continue
        columns.append(pl.col(name).cast(dtype, strict=False))
    return frame.select(columns), faults


def _casts(found: pl.DataType, wanted: pl.DataType) -> bool:
    if found == wanted or found == pl.Null():
        return True
    if wanted == pl.Float64():
        return found.is_numeric()
    if isinstance(wanted, pl.List):
        return isinstance(found, pl.List | pl.Array) and _casts(found.inner, wanted.inner)  # type: ignore[arg-type]
    return isinstance(found, pl.Categorical | pl.Enum) or (found.is_integer() and wanted == pl.String())


def check_manifest(frame: pl.DataFrame) -> list[Fault]:
    """Check a manifest's columns and rows; an empty list means that a run may start."""
    conformed, faults = conform(frame)
    if frame.is_empty():
        return [*faults, Fault(rule="The manifest has no rows.")]
    return faults or [*_row_faults(conformed)]


def _row_faults(frame: pl.DataFrame) -> Iterator[Fault]:
    numbered = frame.with_row_index("row")
    for rule, shown, broken in _rules():
        rows = numbered.filter(broken.fill_null(value=False)).select("row", pl.col(shown))
        if not rows.is_empty():
            first = tuple(f"row {row} ({shown} {value!r})" for row, value in rows.head(_SHOWN_ROWS).iter_rows())
            yield Fault(rule=rule, count=len(rows), first_rows=first)


def _rules() -> Iterator[tuple[str, str, pl.Expr]]:
    """List each rule, the column to show, and which rows break it."""
    choice = pl.element()
    scheme = pl.col("video_uri").str.extract(r"^([A-Za-z][A-Za-z0-9+.-]*)://", 1).str.to_lowercase()
    for name in REQUIRED:
        yield f"{name} is null.", name, pl.col(name).is_null()
    for name in ("job_id", "video_uri", "prompt"):
        yield f"{name} is empty.", name, pl.col(name).str.strip_chars() == ""
    yield "job_id is not unique.", "job_id", pl.col("job_id").is_duplicated() & pl.col("job_id").is_not_null()
    yield "choices holds fewer than two answers.", "choices", pl.col("choices").list.len() < 2  # noqa: PLR2004
    yield (
        "choices holds an empty answer.",
        "choices",
        pl.col("choices").list.eval(choice.is_null() | (choice.str.strip_chars() == "")).list.any(),
    )
    yield (
        "choices repeats an answer.",
        "choices",
        pl.col("choices").list.n_unique() < pl.col("choices").list.len(),
    )
    yield (
        f"video_uri has a scheme other than {', '.join(SCHEMES)} or a plain path.",
        "video_uri",
        scheme.is_not_null() & ~scheme.is_in(SCHEMES),
    )
    yield "answer is not one of choices.", "answer", ~pl.col("answer").is_in(pl.col("choices"))
    yield "start_s is negative.", "start_s", pl.col("start_s") < 0
    yield "end_s is not after start_s.", "end_s", pl.col("end_s") <= pl.col("start_s").fill_null(0.0)
    yield (
        "start_s and end_s: segments cannot be run yet; cut the video, or leave both empty.",
        "job_id",
        pl.col("start_s").is_not_null() | pl.col("end_s").is_not_null(),
    )
    yield (
        "messages cannot be run yet; give video_uri and prompt instead.",
        "job_id",
        pl.col("messages").is_not_null(),
    )
