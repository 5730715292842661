"""The errors that runs and commands raise deliberately, beside those of the library and of the engine.

ReelabelError
├── JobError                        one job cannot succeed: recorded on its row, retried only on request
│   └── ServerFailedError               server_failed
├── TransientError                  the same call may work later: flows/shard/retry.py tries again
│   ├── DatabaseUnavailableError        database_unavailable
│   ├── EngineLostError                 engine_lost: its process died or hung
│   └── ServerUnavailableError          server_unavailable
├── EngineClosedError               the engine was closed during a request, because the run is ending
├── LeaseLostError                  another worker has claimed the shard, or its plan was closed: nothing was written
├── PlanLostError                   a run's plan is missing or was altered: the run must be planned again
├── NotReconciledError              the run ended with missing or duplicate rows
├── RunFailedError                  a run that a worker executed failed
├── BudgetReachedError              the run ended at run.max_cost; the next one continues it
├── ManifestError                   the run cannot start: nothing has been written
│   └── ManifestMissingError            manifest_missing
└── ConfigurationError              a setting, a service or a password is wrong
    └── PlanForeignError                a run's plan was signed with another store.mac_key

Each can be pickled, and has a message without control characters and a `code` that never changes after release.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

from reelabel.errors import ConfigurationError, JobError, ReelabelError, TransientError
from reelabel.text import escape_controls, pluralize

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class ServerFailedError(JobError):
    """The inference server fails on the question, but answers others; the next run asks again."""

    code = "server_failed"
    stage = "inference"

    @classmethod
    def after(cls, faults: Sequence[ServerUnavailableError]) -> Self:
        attempts = pluralize(sum(fault.attempts for fault in faults), "attempt")
        last = faults[-1]
        return cls(
            f"The server at {last.server} failed in {attempts} to answer this question, but answers others: "
            f"{last.cause}."
        )


class DatabaseUnavailableError(TransientError):
    code = "database_unavailable"


class EngineLostError(TransientError):
    code = "engine_lost"


class EngineClosedError(ReelabelError):
    code = "engine_closed"


class ServerUnavailableError(TransientError):
    """The inference server did not respond, or responded with a server error.

    Attributes:
        status: HTTP status; None without a response.
        cause: The status and the server's words, or why there is no response.
        replies: Replies to other questions of the batch that were received nevertheless, by index.
        faults: Why the questions of the batch that failed have no reply, by index.
    """

    code = "server_unavailable"
    server = ""
    status: int | None = None
    cause = ""
    attempts = 1
    replies: Mapping[int, Any] = MappingProxyType({})
    faults: Mapping[int, Sequence[ServerUnavailableError]] = MappingProxyType({})


class LeaseLostError(ReelabelError):
    code = "lease_lost"


class PlanLostError(ReelabelError):
    code = "plan_lost"


class PlanForeignError(ConfigurationError):
    """Files of a plan were signed with another key."""


class NotReconciledError(ReelabelError):
    code = "not_reconciled"


class RunFailedError(ReelabelError):
    code = "run_failed"


class BudgetReachedError(ReelabelError):
    code = "budget_reached"


class ManifestError(ReelabelError):
    code = "manifest_invalid"

    def __init__(self, message: str, faults: Iterable[object] = ()) -> None:
        super().__init__(message)
        self.args = (self.message, tuple(map(str, faults)))
        self.message = "\n".join([self.message, *(f"  - {escape_controls(fault)}" for fault in self.args[1])])

    def __str__(self) -> str:
        return self.message


class ManifestMissingError(ManifestError):
    code = "manifest_missing"
