"""The catalogue of searches, from the rows of described videos."""

from __future__ import annotations

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
        """Count the videos of each space, by the spec by which most of them are described."""
        described = (
            select(DESCRIPTION.c.spec_id, DESCRIPTION.c.dimensions, func.count().label("videos"))
            .group_by(DESCRIPTION.c.spec_id, DESCRIPTION.c.dimensions)
            .subquery()
        )
        query = select(SPEC.c.body["model"], described.c.dimensions, described.c.videos).join(
            described, SPEC.c.spec_id == described.c.spec_id
        )
        counts: dict[VectorSpace, int] = {}
        with database_errors(), self.engine.connect() as connection:
            for body, dimensions, count in connection.execute(query):
                space = VectorSpace(model=ModelIdentity.model_validate(body), dimensions=dimensions)
                counts[space] = max(count, counts.get(space, 0))
        return counts

    def keys(self, space: VectorSpace) -> pl.Series:
        """Return the keys of the embedding files of a space, each once."""
        return self._select(space, {"key": DESCRIPTION.c.embedding_key}, {})["key"].unique()

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
        return self._select(space, _SOURCES, wanted).unique().sort("dataset", "job_id", "key")

    def _select(self, space: VectorSpace, sources: dict[str, Any], wanted: dict[str, str | None]) -> pl.DataFrame:
        """Return some columns of the descriptions of a space; those by several specs may be equal."""
        specs = select(SPEC.c.spec_id).where(SPEC.c.body["model"] == space.model.model_dump(mode="json"))
        with database_errors(), self.engine.connect() as connection:
            query = select(*(source.label(name) for name, source in sources.items())).where(
                DESCRIPTION.c.spec_id.in_(connection.execute(specs).scalars().all()),
                DESCRIPTION.c.dimensions == space.dimensions,
                *(_SOURCES[name] == value for name, value in wanted.items() if value is not None),
            )
            return pl.concat(copy_query(connection, query, dict.fromkeys(sources, pa.string())))
