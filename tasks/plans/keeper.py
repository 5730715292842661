"""Keeping leases while their shards are worked on."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from reelabel.errors import TransientError
from tasks.plans.lease import Work, claim, release, renew

if TYPE_CHECKING:
    from types import TracebackType
    from uuid import UUID

    from sqlalchemy import Engine

    from tasks.plans.lease import Lease

_RENEWALS_PER_LEASE = 3
_OVERDUE_S = 1.0


class LeaseKeeper:
    """Takes leases, renews them from a thread until their shards end, and gives back what is left.

    A process that dies renews nothing: its shards are taken up when the leases end. Safe to use from
    many threads.
    """

    def __init__(self, engine: Engine, *, holder: str, lease_s: float) -> None:
        """Hold nothing yet.

        Args:
            engine: The database.
            holder: Who works here, for people.
            lease_s: Seconds after which a shard that is not renewed can be taken up.
        """
        self._engine = engine
        self._holder = holder
        self._lease_s = lease_s
        self._held: dict[int, Lease] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._is_overdue = False
        self._thread = threading.Thread(target=self._renew, name="lease-keeper", daemon=True)

    def __enter__(self) -> Self:
        """Begin to renew."""
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Give back what was not ended, so that nobody has to wait for it."""
        self._ended.set()
        self._thread.join()
        with self._lock:
            held = list(self._held.values())
        with suppress(TransientError):
            for lease in held:
                release(self._engine, lease)

    def claim(self, plan_id: UUID, work: Work) -> Lease | None:
        """Lease the next shard of a plan; None where there is none at the moment.

        Raises:
            DatabaseUnavailableError: Postgres did not answer.
        """
        if self._is_overdue:  # before what is ours is taken for lost, by ourselves
            self._renew_held()
        leases = claim(self._engine, plan_id, work, holder=self._holder, lease_s=self._lease_s)
        with self._lock:
            self._held.update((lease.token, lease) for lease in leases)
        return leases[0] if leases else None

    def forget(self, lease: Lease) -> None:
        """Renew a lease no more: its shard has ended, or is lost."""
        with self._lock:
            self._held.pop(lease.token, None)

    def give_back(self, lease: Lease, *, message: str) -> None:
        """Give a shard back, saying why; that counts as an attempt.

        Raises:
            DatabaseUnavailableError: It was not given back, and the lease ends by itself.
        """
        self.forget(lease)
        release(self._engine, lease, message=message)

    def _renew(self) -> None:
        # After the database was away, whoever comes first has what nobody renewed.
        while not self._ended.wait(_OVERDUE_S if self._is_overdue else self._lease_s / _RENEWALS_PER_LEASE):
            with suppress(TransientError):
                self._renew_held()

    def _renew_held(self) -> None:
        with self._lock:
            held = list(self._held.values())
        try:
            alive = renew(self._engine, held, lease_s=self._lease_s) if held else set()
        except TransientError:
            self._is_overdue = True
            raise
        self._is_overdue = False
        for lost in (lease for lease in held if lease.token not in alive):
            self.forget(lost)
