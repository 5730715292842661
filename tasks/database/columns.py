"""Columns of tables: their types and comments, and the order in which Postgres packs them best."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    REAL,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    ForeignKeyConstraint,
    Integer,
    MetaData,
    SmallInteger,
    Text,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from tasks.domain.record import Json, columns_of

if TYPE_CHECKING:
    from collections.abc import Container

    from _typeshed import DataclassInstance
    from sqlalchemy import Table
    from sqlalchemy.types import TypeEngine

    Kind = type[TypeEngine[Any]] | TypeEngine[Any]

METADATA = MetaData(schema="reelabel")
TIME = DateTime(timezone=True)
_TYPES: dict[type, type[TypeEngine[Any]]] = {str: Text, bool: Boolean, float: Double, Json: JSONB}
_INTEGERS: dict[int, type[TypeEngine[Any]]] = {16: SmallInteger, 32: Integer, 64: BigInteger}
_ALIGNED_BYTES = {Double: 8, BigInteger: 8, DateTime: 8, Integer: 4, SmallInteger: 2, Boolean: 1, Uuid: 1}


def nullable(kind: Kind, /, *names: str, **described: str) -> list[Column[Any]]:
    """Return columns that may be null, given as names, or as names with comments."""
    comments = dict.fromkeys(names) | described
    return [Column(name, kind, comment=comment) for name, comment in comments.items()]


def required(kind: Kind, /, *names: str, default: str | None = None, **described: str) -> list[Column[Any]]:
    """Return columns that are never null, given as names, or as names with comments; `default` is SQL."""
    comments = dict.fromkeys(names) | described
    default_sql = default and text(default)
    return [
        Column(name, kind, nullable=False, server_default=default_sql, comment=comment)
        for name, comment in comments.items()
    ]


def times(*names: str, **described: str) -> list[Column[Any]]:
    """Return required columns of times, whose default is the current time."""
    return required(TIME, *names, default="now()", **described)


def checks(*conditions: str) -> list[CheckConstraint]:
    return [CheckConstraint(condition) for condition in conditions]


def record_columns(record: type[DataclassInstance], *, required: Container[str] = ()) -> list[Column[Any]]:
    """Return the columns that store a record (`tasks.domain.record`); only those in `required` are never null."""
    return [
        Column(
            each.name,
            _INTEGERS[each.bits] if each.type is int else _TYPES[each.type],
            nullable=each.name not in required,
            comment=each.description,
        )
        for each in columns_of(record)
    ]


def packed(*columns: Column[Any]) -> list[Column[Any]]:
    """Sort columns by alignment, so that Postgres adds no padding to millions of rows."""
    for place, column in enumerate(columns, 1):
        column.info["place"] = place
    return sorted(columns, key=lambda each: -_ALIGNED_BYTES.get(type(each.type), 0))


def in_reading_order(table: Table) -> list[Column[Any]]:
    """Return the columns of a table in the order of its definition, not that on disk: outcome first, then costs."""
    return sorted(table.c, key=lambda each: each.info.get("place", 0))


def job_key() -> list[Column[Any]]:
    comments = {
        "dataset": "Name within which job ids are unique.",
        "job_id": "Id of the job in the manifest.",
        "spec_id": "Model, sampling and prompt: a row of `reelabel.spec`.",
    }
    return [Column(name, Text, primary_key=True, comment=comment) for name, comment in comments.items()]


def digest() -> list[Column[Any]]:
    return required(Text, job_digest="Digest of the question.")


def task_names() -> list[Column[Any]]:
    return nullable(
        Text, **{name: f"{name.capitalize()} in the manifest; null if it has none." for name in ("task", "subtask")}
    )


def probabilities() -> list[Column[Any]]:
    return [
        *nullable(Double, margin="Probability of the label minus that of the runner-up; null for an answer in words."),
        *nullable(
            ARRAY(REAL),  # as precise as those of models
            probabilities="Probability of each choice, in the order of the manifest; null for an answer in words.",
        ),
        *nullable(
            Double,
            entropy_nats="Entropy of the probabilities, at most ln(number of choices); null for an answer in words.",
        ),
    ]


def routed_by() -> list[Column[Any]]:
    return nullable(Text, routed_by="Why a dense sampler was used: `task`, `coverage` or `margin`; otherwise empty.")


def written() -> list[Column[Any]]:
    return [
        *required(Uuid, run_id="The run that wrote the row."),
        *required(Integer, shard_index="The shard of its plan."),
        *required(
            BigInteger,
            fence=("Fencing token of the lease under which the row was written; a lower one never replaces the row."),
            default="0",
        ),
        *required(Text, host="The machine that wrote the row."),
        *times(created_at="When the row was written."),
    ]


def by_run() -> ForeignKeyConstraint:
    return ForeignKeyConstraint(["run_id", "spec_id"], ["reelabel.run_spec.run_id", "reelabel.run_spec.spec_id"])
