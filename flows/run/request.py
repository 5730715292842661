"""A run: what was asked for, what was prepared for it, and what it works with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from flows.run.parameters import NO_OVERRIDES, SpecOverrides
from tasks.domain import RunSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    import polars as pl
    from sqlalchemy import Engine

    from flows.run.progress import Progress
    from flows.run.selection import JobSelector
    from infra.settings import DescribeOptions, Settings
    from reelabel.sources.object_store import ObjectStore
    from tasks.domain import Spec, WallClockProfile
    from tasks.manifest.table import JobTable
    from tasks.model.identity import ModelCard
    from tasks.plans.plan import Plan
    from tasks.results.write import RunKey


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """A run request.

    Attributes:
        kind: `classify`, `describe` or `backfill`.
        overrides: Changes to the spec from the settings or `base`.
        shared: Whether runs with the same manifest and spec share a plan.
        base: Spec of an earlier run; None uses the settings.
        describes: How videos are described; None if the run answers questions.
        selector: Selects among the manifest's jobs; None selects all of them.
        force: Also answer jobs that have a valid label.
        keep_going: Reject invalid rows of the manifest instead of all of it.
        limit: Maximum jobs to answer; None is no limit.
    """

    kind: str
    manifest: str
    dataset: str | None = None
    overrides: SpecOverrides = NO_OVERRIDES
    shared: bool = False
    base: Spec | None = None
    describes: DescribeOptions | None = None
    selector: JobSelector | None = None
    force: bool = False
    keep_going: bool = False
    limit: int | None = None

    @property
    def only(self) -> pl.Series | None:
        """Ids of the only jobs that can be selected; None if any job can."""
        return self.selector.only if self.selector else None

    @property
    def has_questions(self) -> bool:
        """Whether its jobs have questions, or only videos."""
        return self.describes is None

    @property
    def questions_base(self) -> RunSpec | None:
        """The earlier spec, if it asks questions."""
        return self.base if isinstance(self.base, RunSpec) else None

    @property
    def kept(self) -> set[str]:
        """Fields of the spec that must not differ from the earlier run."""
        if self.overrides == NO_OVERRIDES:
            return set(RunSpec.model_fields)
        return set() if self.overrides.model is not None else {"model", "frames_as"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What a run does with its jobs, as far as it can be checked before the run's first row.

    Attributes:
        execute: Executes a plan until it is drained; takes the run, the plan, the run's progress, and the indexes of
            the plan's shards that had ended before the run joined it.
        warnings: Without final periods.
    """

    spec: Spec
    card: ModelCard
    execute: Execute
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run whose request is valid.

    Attributes:
        key: Key of its rows.
        jobs: The manifest's jobs, or those that can be selected.
        manifest_fingerprint: Version of the manifest that they come from, or an earlier one.
        profile: What the time since the start of the run was spent on.
    """

    request: RunRequest
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
        """The spec of its rows."""
        return self.prepared.spec


Execute: TypeAlias = "Callable[[Run, Plan, Progress, Sequence[int]], None]"
# Checks a request against the jobs of its manifest. The profile is charged for a model that is loaded already.
Prepare: TypeAlias = (
    "Callable[[RunRequest, Settings, JobTable, Engine, WallClockProfile], AbstractContextManager[Prepared]]"
)
