"""A run: what it needs, and what it is for, which is to answer questions or to describe videos."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from sqlalchemy import Engine

    from flows.run.progress import Progress
    from flows.run.request import RunRequest
    from infra.settings import Settings
    from reelabel.sources.object_store import ObjectStore
    from tasks.domain import Spec, WallClockProfile
    from tasks.manifest.table import JobTable
    from tasks.model.identity import ModelCard
    from tasks.plans.plan import Plan
    from tasks.results.write import RunKey


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """The context of a valid run.

    Attributes:
        run: Key of its rows.
        card: The model.
        jobs: The manifest's jobs, or those that can be selected.
        manifest_fingerprint: Version of the manifest that they come from, or an earlier one.
        purpose: What the run does with the jobs.
        execute: Executes its plans.
        ledger: What the time since the start of the run was spent on.
        warnings: What was found doubtful before the run, without final periods.
    """

    request: RunRequest
    run: RunKey
    spec: Spec
    card: ModelCard
    jobs: JobTable
    manifest_fingerprint: str
    settings: Settings = field(repr=False)
    objects: ObjectStore
    database: Engine
    purpose: Purpose
    execute: Execute
    ledger: WallClockProfile
    warnings: tuple[str, ...] = ()


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
