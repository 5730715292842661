"""Export to Iceberg tables of a catalog in PyIceberg's own configuration."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from infra.extras import require_lake
from reelabel.errors import ConfigurationError
from reelabel.text import reason_of
from tasks.results.lake.stream import CommitConflictError, RowStream

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import date
    from uuid import UUID

    import polars as pl

_PROPERTIES = {"write.target-file-size-bytes": str(256 * 1024**2)}  # as much is in memory


class IcebergTables:
    """A table each for labels and descriptions, in a namespace such as `catalog.namespace`.

    A run's rows are replaced in one commit. The tables have no partitions, to which the package cannot stream; readers
    skip files by the bounds of their columns.
    """

    def __init__(self, namespace: str) -> None:
        self._catalog, _, self._namespace = namespace.partition(".")

    def write(
        self, table: str, parts: Iterator[pl.DataFrame], *, run_id: UUID, dataset: str, date: date
    ) -> tuple[int, dict[str, Any]]:
        """Replace the rows of a run; return their number and the table's snapshot.

        Raises:
            CommitConflictError: Another export has changed the table.
            ConfigurationError: The package is not installed, or the table cannot be written.
        """
        del dataset  # a column of the rows
        require_lake("iceberg")
        from pyiceberg.catalog import load_catalog  # noqa: PLC0415 - an extra
        from pyiceberg.exceptions import CommitFailedException, ValidationException  # noqa: PLC0415
        from pyiceberg.expressions import EqualTo  # noqa: PLC0415

        warnings.filterwarnings("ignore", "Delete operation did not match any records")  # of the first attempt
        stream, name = RowStream(parts, date), f"{self._namespace}.{table}"
        try:
            catalog = load_catalog(self._catalog)
            catalog.create_namespace_if_not_exists(self._namespace)
            written = catalog.create_table_if_not_exists(name, stream.schema, properties=_PROPERTIES)
            with written.update_schema() as columns:
                columns.union_by_name(stream.schema)  # of a later version
            written.overwrite(stream.read(), overwrite_filter=EqualTo("run_id", str(run_id)))
        except Exception as error:  # the package and its catalogs have no common class of errors
            if stream.error:
                raise stream.error from None
            is_conflict = isinstance(error, (CommitFailedException, ValidationException))
            kind = CommitConflictError if is_conflict else ConfigurationError
            why = reason_of(str(error))
            raise kind(f"The Iceberg table {self._catalog}.{name} cannot be written: {why}") from error
        return stream.count, {"table": f"{self._catalog}.{name}", "snapshot_id": written.metadata.current_snapshot_id}
