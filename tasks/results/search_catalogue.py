"""The catalogue of searches, from the rows of described videos."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
from sqlalchemy import func, select

from infra.database.connect import database_errors
from infra.database.copy_out import copy_query
from tasks.database.tables import DESCRIPTION, SPEC
from tasks.domain import ModelIdentity
from tasks.search.catalogue import VectorSpace

if TYPE_CHECKING:
    from sqlalchemy import Engine

_SOURCES: dict[str, Any] = {
    "dataset": DESCRIPTION.c.dataset,
    "job_id": DESCRIPTION.c.job_id,
    "task": DESCRIPTION.c.task,
    "video_uri": DESCRIPTION.c.video_uri,
    "fingerprint": DESCRIPTION.c.source_fingerprint,
    "key": DESCRIPTION.c.embedding_key,
}


@dataclass(frozen=True, slots=True)
class DatabaseCatalogue:
    """Knows the embedding files of all described videos; a `Catalogue`.

    All methods raise DatabaseUnavailableError if Postgres is unavailable.
    """

    engine: Engine

    def spaces(self) -> dict[VectorSpace, int]:
        """Count the embedding files of each space."""
        files = func.count(DESCRIPTION.c.embedding_key.distinct())
        model = SPEC.c.body["model"].label("model_body")
        query = (
            select(model, DESCRIPTION.c.dimensions, files)
            .join(SPEC, SPEC.c.spec_id == DESCRIPTION.c.spec_id)
            .group_by("model_body", DESCRIPTION.c.dimensions)
        )
        counts: Counter[VectorSpace] = Counter()
        with database_errors(), self.engine.connect() as connection:
            for body, dimensions, count in connection.execute(query):
                counts[VectorSpace(model=ModelIdentity.model_validate(body), dimensions=dimensions)] += count
        return dict(counts)

    def keys(self, space: VectorSpace) -> pl.Series:
        """Return the keys of the embedding files of a space, each once."""
        return self._select(space, {"key": DESCRIPTION.c.embedding_key}, {})["key"]

    def read(
        self,
        space: VectorSpace,
        *,
        dataset: str | None = None,
        task: str | None = None,
        job_id: str | None = None,
    ) -> pl.DataFrame:
        """Return the jobs of a space, all or some, with the columns of `COLUMNS`, in the order of dataset and id."""
        wanted = {"dataset": dataset, "task": task, "job_id": job_id}
        return self._select(space, _SOURCES, wanted).sort("dataset", "job_id", "key")

    def _select(self, space: VectorSpace, sources: dict[str, Any], wanted: dict[str, str | None]) -> pl.DataFrame:
        """Return some columns of the descriptions of a space, equal rows once."""
        specs = select(SPEC.c.spec_id).where(SPEC.c.body["model"] == space.model.model_dump(mode="json"))
        with database_errors(), self.engine.connect() as connection:
            query = (
                select(*(source.label(name) for name, source in sources.items()))
                .distinct()
                .where(
                    DESCRIPTION.c.spec_id.in_(connection.execute(specs).scalars().all()),
                    DESCRIPTION.c.dimensions == space.dimensions,
                    *(_SOURCES[name] == value for name, value in wanted.items() if value is not None),
                )
            )
            return pl.concat(copy_query(connection, query, dict.fromkeys(sources, pa.string())))
