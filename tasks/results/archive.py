"""Archives of datasets: all rows as Parquet files, in a folder for each table.

They are verified by a digest that Postgres computes of the rows in the tables, and of those read back from the files.
"""

from __future__ import annotations

import io
import json
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl
import psycopg
import pyarrow as pa
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Double,
    Integer,
    MetaData,
    Select,
    SmallInteger,
    Table,
    Text,
    Uuid,
    cast,
    delete,
    func,
    select,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, insert
from sqlalchemy.exc import IntegrityError

from infra.database.connect import database_errors, unlimited
from infra.database.copy_out import copy_query
from reelabel.errors import ConfigurationError, ObjectMissingError
from tasks.database.tables import (
    CHUNK,
    DESCRIPTION,
    DESCRIPTION_CHUNK,
    EVALUATION,
    FAILURE,
    PLAN,
    RESULT,
    RESULT_HISTORY,
    RUN,
    RUN_SPEC,
    SHARD,
    SPEC,
)
from tasks.database.temp_table import copy_data_frames
from tasks.results.runs import lock_dataset, lost_runs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import CTE, ColumnElement, Connection, Engine
    from sqlalchemy.types import TypeEngine

    from reelabel.sources.object_store import ObjectStore

    Notify = Callable[[str], None]

_CONTENTS = "archive.json"
_BLOCKS_PER_FILE = 8  # of `copy_query`, together 64 MiB of CSV
_TYPES: dict[type[TypeEngine[Any]], pa.DataType] = {
    Text: pa.string(),
    Uuid: pa.string(),
    JSONB: pa.string(),
    ARRAY: pa.string(),  # until `_with_lists`
    Boolean: pa.bool_(),
    SmallInteger: pa.int16(),
    Integer: pa.int32(),
    BigInteger: pa.int64(),
    Double: pa.float64(),
    DateTime: pa.timestamp("us", "UTC"),
}
# The digest is of rows as text.
_SETTINGS = text(unlimited(extra_float_digits="1", TimeZone="UTC", DateStyle="ISO"))
_DAMAGED = (LookupError, TypeError, ValueError, IntegrityError, psycopg.DataError, pl.exceptions.PolarsError)
_OF_RUNS = select(RUN.c.run_id)
_OF_PLANS = select(PLAN.c.plan_id)


def _belongs(dataset: str) -> dict[Table, ColumnElement[bool]]:
    """Return the conditions for a dataset's rows by table, in an order in which they can be inserted."""
    runs, plans = _OF_RUNS.where(RUN.c.dataset == dataset), _OF_PLANS.where(PLAN.c.dataset == dataset)
    of_runs = RUN_SPEC.c.run_id.in_(runs)
    by_name = (EVALUATION, RESULT, FAILURE, CHUNK, DESCRIPTION, DESCRIPTION_CHUNK, RESULT_HISTORY)
    return {
        SPEC: SPEC.c.spec_id.in_(select(RUN_SPEC.c.spec_id).where(of_runs)),
        RUN: RUN.c.dataset == dataset,
        RUN_SPEC: of_runs,
        PLAN: PLAN.c.dataset == dataset,
        SHARD: SHARD.c.plan_id.in_(plans),
        **{table: table.c.dataset == dataset for table in by_name},
    }


class _Sum(NamedTuple):
    """The number of rows, and their digest, which does not depend on their order."""

    rows: int
    digest: int

    def plus(self, other: _Sum) -> _Sum:
        return _Sum(self.rows + other.rows, self.digest + other.digest)


_NONE = _Sum(0, 0)


@dataclass(frozen=True, slots=True)
class _Files:
    objects: ObjectStore
    folder: str

    def uri(self, table: Table, number: int) -> str:
        return f"{self.folder}/{table.name}/{number:06}.parquet"

    def write(self, table: Table, number: int, frame: pl.DataFrame) -> None:
        data = io.BytesIO()
        frame.write_parquet(data)
        self.objects.replace(self.uri(table, number), data.getvalue())

    def read(self, table: Table, number: int) -> pl.DataFrame:
        try:
            return pl.read_parquet(io.BytesIO(self.objects.read(self.uri(table, number))))
        except (ObjectMissingError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
            raise ConfigurationError(f"{self.uri(table, number)} is missing or damaged: {error}.") from error

    def contents(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads(self.objects.read(f"{self.folder}/{_CONTENTS}"))
        except (ObjectMissingError, ValueError) as error:
            raise ConfigurationError(f"{self.folder} is no archive of `reelabel dataset archive`.") from error
        return found


def archive_dataset(engine: Engine, dataset: str, objects: ObjectStore, target: str, *, notify: Notify) -> int:
    """Write a dataset's rows to Parquet files, read them back, and delete the rows; return how many.

    All is one transaction, in which no run of the dataset can start. The specs stay, since other datasets may use them.
    The target is an empty folder, local or `s3://`; `notify` is called with the progress.

    Raises:
        ConfigurationError: The dataset has no run, one in progress, or a shard at a worker; the folder is not empty; or
            the rows read back differ from those in the tables. No row was deleted.
    """
    files = _Files(objects, target.rstrip("/"))
    if next(iter(objects.list(files.folder)), None) is not None:
        raise ConfigurationError(f"{files.folder} is not empty; name a new folder for the archive.")
    belongs = _belongs(dataset)
    with database_errors(), engine.begin() as connection:
        connection.execute(_SETTINGS)
        lock_dataset(connection, dataset, exclusive=True)
        _require_closed(connection, dataset)
        tables: dict[str, Any] = {}
        for table, condition in belongs.items():
            tables[table.name] = _write_table(connection, table, condition, files, notify=notify)
        for table in reversed(belongs):
            if table is not SPEC:
                found: _Sum | None = None
                columns = (table.c[name] for name in tables[table.name]["columns"])
                with suppress(IntegrityError):  # a new row refers to one of these
                    found = _sum(connection, delete(table).where(belongs[table]).returning(*columns).cte("gone"))
                if found != _sum_of(tables[table.name]):
                    raise ConfigurationError(
                        f"Rows of {table.fullname} changed while they were archived; delete {target}, and try again."
                    )
        contents = {"dataset": dataset, "tables": tables}
        objects.replace(f"{files.folder}/{_CONTENTS}", json.dumps(contents, indent=1).encode())
    return sum(each["rows"] for name, each in tables.items() if name != SPEC.name)


def restore_dataset(engine: Engine, objects: ObjectStore, source: str, *, notify: Notify) -> tuple[str, int]:
    """Insert the rows of an archive, all or none; return the dataset and the number of rows.

    The login is the owner of the tables; `notify` is called with the progress.

    Raises:
        ConfigurationError: The folder is not an archive, a file is missing or damaged, or the dataset has rows.
    """
    files = _Files(objects, source.rstrip("/"))
    contents = files.contents()
    try:
        dataset, tables = contents["dataset"], contents["tables"]
        with database_errors(), engine.begin() as connection:
            connection.execute(_SETTINGS)
            lock_dataset(connection, dataset, exclusive=True)
            if connection.execute(_OF_RUNS.where(RUN.c.dataset == dataset).limit(1)).first() is not None:
                raise ConfigurationError(f"Dataset {dataset} has runs in this database; archive these first.")
            for table, condition in _belongs(dataset).items():
                notify(f"{table.name}: {tables[table.name]['rows']:,} rows")
                _insert_table(connection, table, condition, files, tables[table.name])
            _advance_fence(connection, dataset)
    except _DAMAGED as error:
        raise ConfigurationError(
            f"{source} is damaged, or is not of this version's tables; no row was restored."
        ) from error
    return dataset, sum(each["rows"] for name, each in tables.items() if name != SPEC.name)


def _require_closed(connection: Connection, dataset: str) -> None:
    states = dict(connection.execute(select(RUN.c.run_id, RUN.c.state).where(RUN.c.dataset == dataset)).all())
    if not states:
        raise ConfigurationError(f"There is no run of a dataset {dataset}; `reelabel status` lists the latest runs.")
    running = {run_id for run_id, state in states.items() if state == "running"} - lost_runs(connection)
    if running:
        raise ConfigurationError(
            f"Run {min(running)} of dataset {dataset} is in progress; wait for its end, or stop it."
        )
    is_leased = SHARD.c.plan_id.in_(_OF_PLANS.where(PLAN.c.dataset == dataset)) & (SHARD.c.lease_until > func.now())
    holder = connection.execute(select(SHARD.c.holder).where(is_leased).limit(1)).scalar()
    if holder is not None:
        raise ConfigurationError(
            f"A worker on {holder} still has a shard of dataset {dataset}; stop it, or try again once it is done."
        )


def _write_table(
    connection: Connection, table: Table, condition: ColumnElement[bool], files: _Files, *, notify: Notify
) -> dict[str, Any]:
    """Write a table's rows to files; return their entry in the contents: columns, rows, digest and files."""
    names = [column.name for column in table.c if column.identity is None]  # Postgres generates identities
    found, number = _NONE, 0
    for number, frame in enumerate(_frames(connection, table, condition, names), 1):
        files.write(table, number, frame)
    for _, some in _read_back(connection, table, names, files, number):
        found = found.plus(some)
        notify(f"{table.name}: {found.rows:,} rows")
    return {"columns": names, "rows": found.rows, "digest": str(found.digest), "files": number}


def _insert_table(
    connection: Connection, table: Table, condition: ColumnElement[bool], files: _Files, expected: dict[str, Any]
) -> None:
    names, found = expected["columns"], _NONE
    for copied, some in _read_back(connection, table, names, files, expected["files"]):
        found = found.plus(some)
        rows = insert(table).from_select(names, select(copied))
        connection.execute(rows.on_conflict_do_nothing() if table is SPEC else rows)
    # If files have rows of another dataset, they do not match the condition.
    inserted = found if table is SPEC else _sum(connection, select(*(table.c[name] for name in names)).where(condition))
    if not found == inserted == _sum_of(expected):
        raise ConfigurationError(f"The files of {table.name} in {files.folder} are damaged; no row was restored.")


def _sum_of(entry: dict[str, Any]) -> _Sum:
    return _Sum(int(entry["rows"]), int(entry["digest"]))


def _sum(connection: Connection, rows: Table | Select[Any] | CTE) -> _Sum:
    source = rows.subquery() if isinstance(rows, Select) else rows
    digest = func.hashtextextended(cast(func.row(*source.c), Text), 0)
    count, total = connection.execute(
        select(func.count(), func.coalesce(func.sum(digest), 0)).select_from(source)
    ).one()
    return _Sum(count, int(total))


def _read_back(
    connection: Connection, table: Table, names: list[str], files: _Files, number: int
) -> Iterator[tuple[Table, _Sum]]:
    """Yield a temporary table, without keys, with the rows of each file of a table, and their sum."""
    columns = (Column(name, table.c[name].type) for name in names)
    copied = Table("read_back", MetaData(), *columns, prefixes=["TEMPORARY"], postgresql_on_commit="DROP")
    copied.create(connection)
    for each in range(1, number + 1):
        _copy_in(connection, files.read(table, each), copied)
        yield copied, _sum(connection, copied)
        connection.execute(delete(copied))
    copied.drop(connection)


def _copy_in(connection: Connection, frame: pl.DataFrame, copied: Table) -> None:
    lists = [
        pl.concat_str(pl.lit("{"), pl.col(column.name).cast(pl.List(pl.String)).list.join(","), pl.lit("}")).alias(
            column.name
        )
        for column in copied.c
        if isinstance(column.type, ARRAY)
    ]
    copy_data_frames(connection, copied, [frame.with_columns(lists)])


def _frames(
    connection: Connection, table: Table, condition: ColumnElement[bool], names: list[str]
) -> Iterator[pl.DataFrame]:
    columns = [table.c[name] for name in names]
    read_as = (cast(each, Text) if isinstance(each.type, Boolean) else each for each in columns)
    query = select(*read_as).where(condition).order_by(*table.primary_key)
    types = {each.name: _TYPES[type(each.type)] for each in columns}
    blocks = (_with_lists(block, columns) for block in copy_query(connection, query, types))
    while some := [*islice(blocks, _BLOCKS_PER_FILE)]:
        if sum(map(len, some)):  # without rows, there is one empty block
            yield pl.concat(some)


def _with_lists(frame: pl.DataFrame, columns: list[Column[Any]]) -> pl.DataFrame:
    return frame.with_columns(
        pl.col(each.name)
        .str.extract_all("[^{},]+")
        .cast(pl.List(pl.Float64 if isinstance(each.type.item_type, Double) else pl.Float32))
        for each in columns
        if isinstance(each.type, ARRAY)
    )


def _advance_fence(connection: Connection, dataset: str) -> None:
    """Raise the sequence of fences above those of the rows, which may be another database's."""
    newest = max(
        connection.execute(
            select(func.coalesce(func.max(table.c.fence), 0)).where(table.c.dataset == dataset)
        ).scalar_one()
        for table in (RESULT, FAILURE, CHUNK, DESCRIPTION)
    )
    if newest > connection.execute(text("SELECT last_value FROM reelabel.fence")).scalar_one():
        connection.execute(select(func.setval("reelabel.fence", newest)))
