"""Violations of a manifest's rules as a data frame, and the messages and lists of rejected rows made from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from infra.formulas import without_formulas
from reelabel.sources.object_info import redact_uri
from reelabel.text import pluralize, quoted
from tasks.manifest.schema import ROW

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    # A sentence, the column whose values its message shows, and which rows break it.
    Rule = tuple[str, str, pl.Expr]

REJECTED_FILE = "rejected.csv"
REJECTS = pl.Schema({ROW: pl.UInt32, "job_id": pl.String, "reason": pl.String})
# `shown` is the value that a message shows of the first rows of a rule; null for the job's id. `count` is the number of
# rows that a violation stands for.
VIOLATIONS = pl.Schema({ROW: pl.UInt32, "job_id": pl.String, "rule": pl.String, "shown": pl.String, "count": pl.UInt32})
_MAX_LINES, _SHOWN_ROWS = 20, 3


def find_violations(frame: pl.DataFrame, rules: Iterable[Rule]) -> pl.DataFrame:
    """Return which rows break which rules; `frame` has `row`, `job_id` and the rules' columns."""
    rules, found = [*rules], [pl.DataFrame(schema=VIOLATIONS)]
    # Evaluate all rules in parallel first; look for rows only where a rule is broken.
    any_broken = frame.select(each[2].any().alias(f"{at}") for at, each in enumerate(rules)).row(0) if rules else ()
    for (rule, column, broken), is_broken in zip(rules, any_broken, strict=True):
        if is_broken:
            rows = frame.filter(broken.fill_null(value=False)).select(ROW, "job_id", value=column)
            values = [] if column == "job_id" else rows["value"].head(_SHOWN_ROWS).to_list()
            shown = pl.Series("shown", [_named(column, value) for value in values], dtype=pl.String)
            shown = shown.extend_constant(None, len(rows) - len(shown))
            count = pl.lit(1, dtype=pl.UInt32).alias("count")
            found.append(rows.select(ROW, "job_id", pl.lit(rule).alias("rule"), shown, count))
    return pl.concat(found)


def list_violations(violations: pl.DataFrame, place: Callable[[int], str] = "row {}".format) -> list[str]:
    """Return a sentence for each rule, with the number of rows that break it and the places of the first ones."""
    rules = violations.group_by("rule", maintain_order=True).agg(
        pl.col("count").sum(), pl.col(ROW, "job_id", "shown").head(_SHOWN_ROWS)
    )
    return [
        f"{rule} {pluralize(count, 'row')}, first {', '.join(map(_first, map(place, rows), job_ids, shown))}."
        for rule, count, rows, job_ids, shown in rules.iter_rows()
    ]


def _first(place: str, job_id: str | None, shown: str | None) -> str:
    value = _named("job_id", job_id) if shown is None else shown
    return f"{place} ({value})" if value else place


def keep_first(violations: pl.DataFrame) -> pl.DataFrame:
    """Keep the violations that a message shows; the last of a rule has the `count` of all others."""
    place, last = pl.int_range(pl.len()).over("rule"), _SHOWN_ROWS - 1
    others = pl.col("count").sum().over("rule") - last
    return violations.with_columns(count=pl.when(place == last).then(others).otherwise("count")).filter(place <= last)


def shorten_list(lines: Sequence[str]) -> list[str]:
    """Return the first lines of a message, and a line with the number of the others."""
    more = len(lines) - _MAX_LINES
    return [*lines[:_MAX_LINES], *([f"and {more:,} more kinds of faults"] if more > 0 else [])]


def _named(column: str, value: object) -> str:
    return "" if value in (None, "") else f"{column} {quoted(redact_uri(value) if isinstance(value, str) else value)}"


def reject_rows(violations: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with violations, in order, as `REJECTS`; `reason` joins the rules that a row breaks."""
    rows = violations.group_by(ROW, maintain_order=True)
    return rows.agg(pl.col("job_id").first(), pl.col("rule").str.join(" ").alias("reason")).sort(ROW)


def without_rows(frame: pl.DataFrame, rejects: pl.DataFrame) -> pl.DataFrame:
    return frame.filter(~pl.col(ROW).is_in(rejects[ROW].implode()))


def rejected_csv(rejects: pl.DataFrame) -> bytes:
    """Format rejected rows as CSV that is safe to open in a spreadsheet."""
    return without_formulas(rejects).write_csv().encode()
