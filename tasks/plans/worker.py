"""Workers that are alive: processes that extract or infer shards, whether or not they hold a lease at the moment."""

from __future__ import annotations

import os
import shlex
import socket
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from sqlalchemy import delete, func, select
from sqlalchemy.dialects.postgresql import insert

from infra.database.connect import database_errors
from infra.processes import has_ended, own_process
from reelabel.errors import ReelabelError
from tasks.database.tables import WORKER
from tasks.domain import ModelIdentity
from tasks.plans.lease import Work

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import ColumnElement, Engine

BEAT_S = 5.0
_DEAD_AFTER_S = 4 * BEAT_S
_KEPT_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A worker that is alive.

    Attributes:
        stage: `extract` or `infer`.
        pid: Id of its process on its host.
        plan_id: The only plan that it serves; None serves every open plan.
        model: The only model that it serves; None for extraction, which needs no model.
        alive_s: Seconds since its start.
        seen_s: Seconds since its last heartbeat.
    """

    worker_id: UUID
    stage: Work
    host: str
    pid: int
    plan_id: UUID | None
    model: ModelIdentity | None
    alive_s: float
    seen_s: float

    def serves(self, plan_id: UUID, model: ModelIdentity) -> bool:
        """Return whether it works on the shards of a plan that needs the given model."""
        return self.plan_id in (None, plan_id) and self.model in (None, model)


@contextmanager
def alive(
    engine: Engine,
    stage: Work,
    *,
    plan_id: UUID | None = None,
    model: ModelIdentity | None = None,
    beat_s: float = BEAT_S,
) -> Iterator[None]:
    """Record that this process is a worker, with a heartbeat while the body runs; see `Worker` for the arguments.

    Raises:
        DatabaseUnavailableError: Postgres is unavailable at the start; later, a heartbeat is left out.
    """
    row = {
        "worker_id": uuid4(),
        "stage": stage,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "process": own_process(),
        "plan_id": plan_id,
        "model": model and model.model_dump(mode="json"),
    }
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(beat_s):
            with suppress(ReelabelError):  # a login may be refused for a moment, too, as during a failover
                _record(engine, row)

    _forget_dead(engine)
    _record(engine, row)
    thread = threading.Thread(target=beat, name="worker-heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        with suppress(ReelabelError):
            ended.set()
            thread.join()
            _forget(engine, WORKER.c.worker_id == row["worker_id"])


def live_workers(engine: Engine) -> list[Worker]:
    """List the workers with a recent heartbeat, oldest first, without those whose process on this machine has ended."""
    seen_s, alive_s = (
        func.extract("epoch", func.clock_timestamp() - since) for since in (WORKER.c.seen_at, WORKER.c.started_at)
    )
    query = (
        select(WORKER, seen_s.label("seen_s"), alive_s.label("alive_s"))
        .where(seen_s < _DEAD_AFTER_S)
        .order_by(WORKER.c.started_at)
    )
    with database_errors(), engine.connect() as connection:
        rows = connection.execute(query).mappings().all()
    return [
        Worker(
            stage=Work(row["stage"]),
            **{name: row[name] for name in ("worker_id", "host", "pid", "plan_id")},
            model=row["model"] and ModelIdentity.model_validate(row["model"]),
            alive_s=float(row["alive_s"]),
            seen_s=float(row["seen_s"]),
        )
        for row in rows
        if not has_ended(row["process"])
    ]


def _record(engine: Engine, row: dict[str, object]) -> None:
    seen = {"seen_at": func.clock_timestamp()}
    statement = insert(WORKER).values(row | seen).on_conflict_do_update(index_elements=["worker_id"], set_=seen)
    with database_errors(), engine.begin() as connection:
        connection.execute(statement)


def _forget_dead(engine: Engine) -> None:
    _forget(engine, func.extract("epoch", func.clock_timestamp() - WORKER.c.seen_at) > _KEPT_S)


def _forget(engine: Engine, which: ColumnElement[bool]) -> None:
    with database_errors(), engine.begin() as connection:
        connection.execute(delete(WORKER).where(which))


def start_command(stage: Work, *, model: str | None = None) -> str:
    """Return the command that starts a worker of a stage, with a model other than the settings', if one is named."""
    return shlex.join(["reelabel", "worker", stage, *(["--model", model] if model and stage == Work.INFER else [])])
