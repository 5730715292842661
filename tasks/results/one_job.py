"""Everything that the database has of one job: its current rows in each dataset and spec, and its earlier labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import func, select

from infra.database.connect import database_errors
from reelabel.errors import ConfigurationError
from tasks.database.tables import DESCRIPTION, FAILURE, RESULT, RESULT_HISTORY, RUN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Engine

_KINDS = {RESULT: "label", DESCRIPTION: "description", FAILURE: "failure"}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRows:
    """The rows of one job.

    Attributes:
        current: One row per dataset and spec, newest first: its columns, its `kind` (label, description or failure),
            and the `manifest_uri` and `native_sampler` of the run that wrote it.
        history: The labels that later ones have replaced, newest first.
    """

    current: tuple[Mapping[str, Any], ...]
    history: tuple[Mapping[str, Any], ...]


def read_job(engine: Engine, job_id: str, *, dataset: str | None = None) -> JobRows:
    """Read the rows of a job, in all datasets or in one.

    Raises:
        ConfigurationError: It has none.
    """
    of_run = (RUN.c.manifest_uri, RUN.c.native_sampler)
    current: list[dict[str, Any]] = []
    with database_errors(), engine.connect() as connection:
        # Naming the datasets lets Postgres use the primary keys, which begin with the dataset.
        datasets = [dataset] if dataset else [*connection.execute(select(RUN.c.dataset).distinct()).scalars()]
        for table, kind in _KINDS.items():
            query = select(table, *of_run).join_from(table, RUN, table.c.run_id == RUN.c.run_id)
            its = (table.c.dataset == func.any(datasets)) & (table.c.job_id == job_id)
            current += [{"kind": kind, **row} for row in connection.execute(query.where(its)).mappings()]
        earlier = select(RESULT_HISTORY).where(
            RESULT_HISTORY.c.dataset == func.any(datasets), RESULT_HISTORY.c.job_id == job_id
        )
        history = connection.execute(earlier.order_by(RESULT_HISTORY.c.history_id.desc())).mappings().all()
    if not current:
        where = f"Dataset {dataset} has" if dataset else "There is"
        raise ConfigurationError(f"{where} no outcome of a job {job_id}; `reelabel results` lists those of a run.")
    current.sort(key=lambda row: row["created_at"], reverse=True)
    return JobRows(current=tuple(current), history=tuple(map(dict, history)))
