"""A run: its request, its prepared spec and model, its jobs, and the services that it uses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from tasks.domain import RunSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from sqlalchemy import Engine

    from flows.run.duplicates import DuplicateJobs
    from flows.run.progress import Progress
    from flows.run.request import RunRequest
    from flows.run.selection import JobSelector
    from infra.settings import Settings
    from reelabel.sources.object_store import ObjectStore
    from tasks.domain import Spec, WallClockProfile
    from tasks.manifest.table import JobTable
    from tasks.model.identity import ModelInfo
    from tasks.plans.plan import Plan
    from tasks.results.write import RunKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """The part of a run that is checked before its first row is written.

    Attributes:
        execute: Executes a plan until it is drained; takes the run, the plan, the run's progress, and the indexes of
            the plan's shards that had ended before the run joined it.
        warnings: Without final periods.
        duplicates: Groups of jobs of which only one is answered; None answers every job.
    """

    spec: Spec
    model_info: ModelInfo
    execute: Execute
    warnings: tuple[str, ...] = ()
    duplicates: DuplicateJobs | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run whose request is valid.

    Attributes:
        selector: Selects among the manifest's jobs, in a backfill; None selects all of them.
        jobs: The manifest's jobs, or those that can be selected.
        manifest_fingerprint: Version of the manifest, read before its jobs, so that it is never newer than they are.
        profile: Wall-clock time by phase since the start of the run.
    """

    request: RunRequest
    selector: JobSelector | None
    key: RunKey
    prepared: Prepared
    jobs: JobTable
    manifest_fingerprint: str
    settings: Settings = field(repr=False)
    objects: ObjectStore
    database: Engine
    profile: WallClockProfile

    @property
    def spec(self) -> Spec:
        return self.prepared.spec

    @property
    def has_questions(self) -> bool:
        """Whether its jobs have questions, or only videos."""
        return isinstance(self.spec, RunSpec)

    @property
    def is_shared(self) -> bool:
        """Whether runs with the same manifest and spec share its plan."""
        return self.selector is None and not self.request.force


Execute: TypeAlias = "Callable[[Run, Plan, Progress, Sequence[int]], None]"
RequestT = TypeVar("RequestT", bound="RunRequest")
# Checks a request against the jobs of its manifest; models that are loaded for that are charged to the profile.
Prepare: TypeAlias = (
    "Callable[[RequestT, Settings, JobTable, Engine, WallClockProfile], AbstractContextManager[Prepared]]"
)
