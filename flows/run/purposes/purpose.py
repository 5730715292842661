"""What differs between runs that answer questions and runs that describe videos; all else is the same for both."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from sqlalchemy import Engine

    from flows.run.context import RunContext
    from flows.run.progress import Progress
    from flows.run.request import RunRequest
    from infra.settings import Settings
    from tasks.domain import Spec, WallClockProfile
    from tasks.manifest.table import JobTable
    from tasks.model.identity import ModelCard
    from tasks.plans.plan import Plan


class Execute(Protocol):
    """Executes a plan until it is drained."""

    def __call__(self, plan: Plan, progress: Progress, context: RunContext, *, done_before: Sequence[int]) -> None:
        """Execute a plan; `done_before` are the indexes of its shards that had ended before the run joined it.

        Raises:
            TransientError: A service was unavailable for longer than the retries.
        """


class Purpose(ABC):
    """What a run does with its jobs.

    Attributes:
        has_questions: Whether its jobs have questions, or only videos.
    """

    has_questions: ClassVar[bool]

    @abstractmethod
    def resolve(self, request: RunRequest, settings: Settings) -> tuple[ModelCard, Spec]:
        """Read the model's card, and resolve the spec.

        Raises:
            ModelError: The model cannot be used.
            ConfigurationError: The options cannot be used, or the earlier spec cannot be reproduced.
        """

    @abstractmethod
    def check_jobs(self, jobs: JobTable, spec: Spec, *, manifest: str, settings: Settings) -> None:
        """Check that the jobs of a manifest are suited to a spec, and to the backend of the settings.

        Raises:
            ManifestError: They are not.
            ConfigurationError: The backend cannot show all of their videos.
        """

    @abstractmethod
    def check_backend(self, card: ModelCard, settings: Settings) -> None:
        """Check that what runs the model is installed here, if this process will open it.

        Raises:
            ConfigurationError: It is not.
        """

    @abstractmethod
    def doubts(self, request: RunRequest, settings: Settings, card: ModelCard) -> tuple[str, ...]:
        """Return what is doubtful before the run, without final periods."""

    @abstractmethod
    def ready(
        self, settings: Settings, *, card: ModelCard, spec: Spec, database: Engine, ledger: WallClockProfile
    ) -> AbstractContextManager[Execute]:
        """Prepare what must be right before the run's first row; give what executes its plans.

        The ledger is charged for a model that is loaded here.

        Raises:
            ConfigurationError: Something is not.
            ModelError: The model cannot be loaded.
        """

    @abstractmethod
    def warn_of_jobs(self, context: RunContext, selected: JobTable) -> str:
        """Say which of the selected jobs are bound to fail, before any work; empty if none are known to be."""

    @abstractmethod
    def is_local(self, settings: Settings) -> bool:
        """Return whether the run executes its plans itself, so that nobody continues them when it is stopped."""
