"""Log lines about a shard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infra.log_context import log_fields, logged

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from uuid import UUID

    from flows.shard.queue import LeasedShard


def shard_logged(leased: LeasedShard, stage: str | None) -> AbstractContextManager[None]:
    """Say in the log lines of the body which shard they are about, and which stage, unless both or neither.

    Its run is that of the context, or else the one that made its plan.
    """
    return index_logged(leased.plan.plan_id, leased.plan.run_id, leased.lease.shard_index, stage=stage)


def index_logged(plan_id: UUID, run_id: UUID, index: int, *, stage: str | None) -> AbstractContextManager[None]:
    """Say the same of a shard that was not read yet."""
    return logged(run=log_fields().get("run", run_id), plan=plan_id, shard=index, stage=stage)
