"""The catalogue of search, from the rows of described videos."""

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
from tasks.search.catalogue import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import ColumnElement, Engine

_KEY = DESCRIPTION.c.embedding_key


@dataclass(frozen=True, slots=True)
class DatabaseCatalogue:
    engine: Engine

    def models(self) -> dict[ModelIdentity, int]:
        """Count the videos that each model has embedded, under the spec with most of them."""
        described = (
            select(DESCRIPTION.c.spec_id, func.count().label("videos")).group_by(DESCRIPTION.c.spec_id).subquery()
        )
        query = select(SPEC.c.body["model"], described.c.videos).join(described, SPEC.c.spec_id == described.c.spec_id)
        counts: dict[ModelIdentity, int] = {}
        with database_errors(), self.engine.connect() as connection:
            for body, count in connection.execute(query):
                model = ModelIdentity.model_validate(body)
                counts[model] = max(count, counts.get(model, 0))
        return counts

    def files(self, model: ModelIdentity, *, dataset: str | None = None, task: str | None = None) -> pl.DataFrame:
        """Return the embedding files of a model, optionally of a dataset or task, with the columns of `FILES`."""
        # By 64-bit hashes: the odds that two of ten million videos are taken for one are one in 400,000.
        name = func.concat_ws("\n", DESCRIPTION.c.video_uri, DESCRIPTION.c.source_fingerprint)
        columns = {"key": _KEY, "video": func.hashtextextended(name, 0)}
        kinds = {"key": pa.string(), "video": pa.int64()}
        return self._select(model, columns, kinds, dataset=dataset, task=task).unique("key", maintain_order=True)

    def versions(self, model: ModelIdentity) -> pl.DataFrame:
        """Return each embedding file, `key`, with its `source_fingerprint` and `video_digest`.

        The digest is that of a job without a question on the same part of the video.
        """
        columns = {"video_digest": DESCRIPTION.c.job_digest, "source_fingerprint": DESCRIPTION.c.source_fingerprint}
        columns |= {"key": _KEY}
        return self._select(model, columns, dict.fromkeys(columns, pa.string())).unique(maintain_order=True)

    def read(
        self,
        model: ModelIdentity,
        *,
        dataset: str | None = None,
        task: str | None = None,
        job_id: str | None = None,
        keys: Sequence[str] | None = None,
    ) -> pl.DataFrame:
        """Return the matching jobs of a model, with the columns of `COLUMNS`, in the order of dataset and id."""
        columns = {name: _KEY if name == "key" else DESCRIPTION.c[name] for name in COLUMNS}
        kinds = dict.fromkeys(COLUMNS, pa.string())
        found = self._select(model, columns, kinds, dataset=dataset, task=task, job_id=job_id, keys=keys)
        return found.unique().sort("dataset", "job_id", "key")

    def _select(
        self,
        model: ModelIdentity,
        columns: Mapping[str, ColumnElement[Any]],
        kinds: dict[str, pa.DataType],
        *,
        dataset: str | None = None,
        task: str | None = None,
        job_id: str | None = None,
        keys: Sequence[str] | None = None,
    ) -> pl.DataFrame:
        """Return columns of the descriptions by a model; rows of several specs may be equal."""
        specs = select(SPEC.c.spec_id).where(SPEC.c.body["model"] == model.model_dump(mode="json"))
        wanted = {"dataset": dataset, "task": task, "job_id": job_id}
        with database_errors(), self.engine.connect() as connection:
            query = select(*(column.label(name) for name, column in columns.items())).where(
                DESCRIPTION.c.spec_id.in_(connection.execute(specs).scalars().all()),
                *(DESCRIPTION.c[name] == value for name, value in wanted.items() if value is not None),
                *([] if keys is None else [_KEY.in_(keys)]),
            )
            return pl.concat(copy_query(connection, query, kinds))
