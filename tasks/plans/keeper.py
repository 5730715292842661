"""Renewal of leases while their shards are processed."""

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
    """Claims shards, renews their leases in a background thread, and releases those left at exit. Thread-safe.

    The leases of a process that dies expire, and other workers then claim its shards.
    """

    def __init__(self, engine: Engine, *, holder: str, lease_s: float) -> None:
        """Create a keeper without leases.

        Args:
            engine: The database.
            holder: Name of this worker, for display.
            lease_s: Seconds after which a lease that is not renewed expires.
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
        """Start the renewal thread."""
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Stop renewing, and release the remaining leases, so that no one has to wait for them to expire."""
        self._ended.set()
        self._thread.join()
        with self._lock:
            held = list(self._held.values())
        with suppress(TransientError):
            for lease in held:
                release(self._engine, lease)

    def claim(self, plan_id: UUID, work: Work) -> Lease | None:
        """Lease the next shard of a plan; None if there is none at the moment.

        Raises:
            DatabaseUnavailableError: Postgres is unavailable.
        """
        if self._is_overdue:  # otherwise this claim would free our own expired leases
            self._renew_held()
        leases = claim(self._engine, plan_id, work, holder=self._holder, lease_s=self._lease_s)
        with self._lock:
            self._held.update((lease.token, lease) for lease in leases)
        return leases[0] if leases else None

    def forget(self, lease: Lease) -> None:
        """Stop renewing a lease whose shard has ended or whose holder has lost it."""
        with self._lock:
            self._held.pop(lease.token, None)

    def release(self, lease: Lease, *, message: str) -> None:
        """Release a shard with the reason, which counts as a failed attempt.

        Raises:
            DatabaseUnavailableError: The shard was not released; its lease expires.
        """
        self.forget(lease)
        release(self._engine, lease, message=message)

    def _renew(self) -> None:
        # After an outage, renew at once: another worker may claim any shard whose lease has expired.
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
