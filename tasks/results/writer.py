"""Write finished shards, grouping those that finish during a transaction into the next one."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any

from infra.errors import DatabaseUnavailableError
from tasks.results.write import MAX_LOCKS, EndedShard, RunKey, write_shards

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Engine

    from tasks.domain import Failure, JobResult
    from tasks.plans.lease import Lease

_Waiting = tuple[EndedShard, "Future[None]"]


@dataclass(frozen=True, slots=True)
class ShardWriter:
    """Writer of a plan's shards. Thread-safe.

    A transaction of several shards costs little more than one of a single shard. No thread waits for a group to fill:
    the first one writes at once, and those that arrive meanwhile share the next transaction.

    Attributes:
        engine: The database.
        run: The values that all rows share.
    """

    engine: Engine
    run: RunKey
    _gathered: deque[_Waiting] = field(default_factory=deque, init=False, repr=False)
    _turn: Lock = field(default_factory=Lock, init=False, repr=False)

    def write(
        self,
        results: Sequence[JobResult],
        failures: Sequence[Failure],
        *,
        lease: Lease | None = None,
        report: dict[str, Any] | None = None,
    ) -> None:
        """Write the outcomes of a shard's jobs, and mark it as done; see `write_shards`.

        Raises:
            LeaseLostError: Another worker holds the shard; nothing of it was written.
            DatabaseUnavailableError: Nothing of it was written.
        """
        done = Future[None]()
        self._gathered.append((EndedShard(results=results, failures=failures, lease=lease, report=report), done))
        with self._turn:
            while not done.done():
                self._write(self._take())
        done.result()

    def _take(self) -> list[_Waiting]:
        """Take waiting shards in order: one, and as many more as fit into a transaction."""
        group: list[_Waiting] = []
        while self._gathered and (not group or sum(map(_jobs, [*group, self._gathered[0]])) <= MAX_LOCKS):
            group.append(self._gathered.popleft())
        return group

    def _write(self, group: list[_Waiting]) -> None:
        try:
            write_shards(self.engine, run=self.run, shards=[shard for shard, _ in group])
        except BaseException as error:  # noqa: BLE001 - raised in the waiting threads
            if len(group) > 1 and isinstance(error, Exception) and not isinstance(error, DatabaseUnavailableError):
                for each in group:  # a single shard may cause the error
                    self._write([each])
            else:
                for _, done in group:
                    done.set_exception(error)
        else:
            for _, done in group:
                done.set_result(None)


def _jobs(waiting: _Waiting) -> int:
    shard, _ = waiting
    return len(shard.results) + len(shard.failures)
