"""Export to Delta Lake tables, partitioned by dataset and date."""

from __future__ import annotations

import os
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any

from infra.extras import require_lake
from reelabel.errors import ConfigurationError
from reelabel.options import reveal
from reelabel.sources.object_info import redact_uri
from reelabel.text import reason_of
from tasks.results.lake.stream import CommitConflictError, RowStream

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import date
    from uuid import UUID

    import polars as pl

    from reelabel.options import S3Options
    from reelabel.sources.object_store import ObjectStore

_PARTITIONS = ["dataset", "date"]
_ENVIRONMENT = Lock()


class DeltaTables:
    """A table each for labels and descriptions.

    A run's rows are replaced in one commit, so that a repeated attempt leaves them once. A transaction identifier would
    not do: the package records it, but does not refuse a second one; and a run that goes on has new rows.
    """

    def __init__(self, store: S3Options, objects: ObjectStore, target: str) -> None:
        self._objects = objects
        self._target = target
        self._options = _storage_options(store)
        self._has_keys = "aws_access_key_id" in self._options

    def write(
        self, table: str, parts: Iterator[pl.DataFrame], *, run_id: UUID, dataset: str, date: date
    ) -> tuple[int, dict[str, Any]]:
        """Replace the rows of a run; return their number and the table's version.

        Raises:
            CommitConflictError: Another export has changed the same rows.
            ConfigurationError: The package is not installed, or the table cannot be written.
        """
        deltalake = require_lake("delta")
        uri, stream = f"{self._target}/{table}", RowStream(parts, date)
        try:
            with _own_keys_only(self._has_keys):
                written = deltalake.DeltaTable.create(
                    str(self._objects.local_path(uri) or uri),
                    stream.schema,
                    mode="ignore",
                    partition_by=_PARTITIONS,
                    storage_options=self._options,
                )
                deltalake.write_deltalake(
                    written,
                    stream.read(),
                    mode="overwrite",
                    predicate=_predicate(dataset=dataset, date=date, run_id=run_id),
                    schema_mode="merge",  # columns of a later version
                    writer_properties=deltalake.WriterProperties(compression="ZSTD"),
                )
        except Exception as error:
            if stream.error:
                raise stream.error from None
            if not isinstance(error, (deltalake.exceptions.DeltaError, OSError)):
                raise
            is_conflict = isinstance(error, deltalake.exceptions.CommitFailedError)
            kind = CommitConflictError if is_conflict else ConfigurationError
            why = reason_of(str(error))  # with the answer of the server
            raise kind(f"The Delta table {redact_uri(uri)} cannot be written: {why}") from error
        return stream.count, {"table": uri, "version": written.version()}


def _predicate(**columns: object) -> str:
    """Return which rows to replace; other partitions are neither read nor in conflict."""
    literals = {name: str(value).replace("'", "''") for name, value in columns.items()}
    return " AND ".join(f"{name} = '{value}'" for name, value in literals.items())


@contextmanager
def _own_keys_only(has_keys: bool) -> Iterator[None]:  # noqa: FBT001 - its only argument
    """Hide the variables of AWS if there are keys: the package would add the session token of other keys."""
    with _ENVIRONMENT:
        names = [name for name in os.environ if has_keys and name.startswith("AWS_")]
        hidden = {name: os.environ.pop(name) for name in names}
        try:
            yield
        finally:
            os.environ.update(hidden)


def _storage_options(store: S3Options) -> dict[str, str]:
    """Return the package's options for S3; without keys, it uses the AWS credential chain."""
    options = {
        "aws_region": store.region,
        "aws_endpoint_url": store.endpoint_url,
        "aws_access_key_id": reveal(store.access_key_id),
        "aws_secret_access_key": reveal(store.secret_access_key),
        "allow_http": "true" if (store.endpoint_url or "").startswith("http://") else None,
        "certificate_path": str(store.ca_file) if store.ca_file else None,
        "connect_timeout": f"{store.connect_timeout_s}s",
        "timeout": f"{store.read_timeout_s}s",
        "max_retries": str(store.max_attempts - 1),
    }
    return {name: value for name, value in options.items() if value is not None}
