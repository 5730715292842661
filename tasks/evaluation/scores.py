"""An evaluation: several ways of asking on one labelled manifest, each beside a baseline.

Every accuracy is a share of the jobs that have both a label and a known answer, and so says nothing of
failures, which are counted beside it. Every difference is paired: over the jobs that both ways of asking
have labelled, the way's accuracy minus the baseline's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A share of jobs with its 95% confidence interval (Wilson's score); all from 0 to 1."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How much more accurate than the baseline, on the same jobs.

    Attributes:
        jobs: Jobs that both have labelled.
        gained: Those of them that only this way answers right.
        lost: Those that only the baseline answers right.
        value: Accuracy minus the baseline's, -1 to 1.
        low: Lower end of its 95% confidence interval (Newcombe's for paired shares).
        high: Its upper end.
        p_value: McNemar's exact test, two-sided.
        p_holm: The same, adjusted by Holm's method: for subtasks over all subtasks of one spec, for tasks
            over its tasks, and over all jobs over the specs.
    """

    jobs: int
    gained: int
    lost: int
    value: float
    low: float
    high: float
    p_value: float
    p_holm: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a spec's labels took, by its rows and the runs that wrote them; None where nothing tells.

    Attributes:
        wall_s: Seconds of those runs in which the engine was loaded; its start takes the same for one job as for many.
        jobs_per_s: Jobs that these runs asked, by those seconds.
        videos: Videos (or segments of such) that the jobs are about.
        videos_cached: Those of them whose frames stood in the cache before, so that they cost no decoding.
        frames_decoded: Frames that the decoder gave for the others.
        decode_s: Seconds of decoding, summed over processes.
        bytes_read: Bytes of videos that were fetched.
        engine_s: The engine's seconds, each job's share of its batch.
    """

    wall_s: float | None = None
    jobs_per_s: float | None = None
    videos: int | None = None
    videos_cached: int | None = None
    frames_decoded: int | None = None
    decode_s: float | None = None
    bytes_read: int | None = None
    engine_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecScore:
    """One way of asking, over all jobs.

    Attributes:
        name: As the evaluation calls it, such as `keyframes:16`; unique in it.
        spec_id: What its results are filed under.
        model: The model's name.
        sampling: The spec's sampling, as JSON values: `sampler`, `num_frames` and the others.
        jobs: Jobs with a known answer.
        labels: Those of them with a label.
        failures: Those of them that failed.
        correct: Labels that are the known answer.
        accuracy: Share of the labels; None without one.
        calibration_error: Expected gap between confidence and accuracy, 0 to 1 (`tasks.calibration.fit`).
        difference: To the baseline; None for the baseline itself, and where no job is labelled by both.
        cost: What it took.
    """

    name: str
    spec_id: str
    model: str
    sampling: dict[str, Any]
    jobs: int
    labels: int
    failures: int
    correct: int
    accuracy: Share | None
    calibration_error: float | None
    difference: Difference | None = None
    cost: Cost = field(default_factory=Cost)

    @property
    def sampler(self) -> str:
        """How frames were chosen."""
        return str(self.sampling["sampler"])

    @property
    def num_frames(self) -> int:
        """How many were asked for; some samplers go by other numbers of `sampling`."""
        return int(self.sampling["num_frames"])


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupScore:
    """One way of asking, on the jobs of one task or subtask.

    Attributes:
        spec: Name of the way of asking.
        task: The manifest's; None holds the jobs without one.
        subtask: The same; in `Evaluation.tasks` always None.
        jobs: Jobs with a label and a known answer, at least one.
        correct: Those whose label is that answer.
        difference: To the baseline; None for the baseline itself, and where no job is labelled by both.
    """

    spec: str
    task: str | None
    subtask: str | None
    jobs: int
    correct: int
    accuracy: Share
    difference: Difference | None = None

    @property
    def title(self) -> str:
        """Task and subtask as one text; empty for jobs without either."""
        return " / ".join(filter(None, (self.task, self.subtask)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Several ways of asking on one labelled manifest.

    Attributes:
        manifest_uri: The manifest.
        dataset: What its results are filed under.
        created_at: When, in ISO 8601 and UTC.
        jobs: Rows of the manifest.
        known: Those of them whose answer is known; only they are evaluated.
        baseline: Name of the way of asking that the others are compared with.
        specs: All ways of asking, in the order in which they were asked for.
        tasks: Scores by task: all specs of the first task, then of the next; empty where no job has a task.
        subtasks: The same by task and subtask; empty where no job has a subtask.
    """

    manifest_uri: str
    dataset: str
    created_at: str
    jobs: int
    known: int
    baseline: str
    specs: tuple[SpecScore, ...]
    tasks: tuple[GroupScore, ...]
    subtasks: tuple[GroupScore, ...]

    def spec(self, name: str) -> SpecScore:
        """Find a way of asking by its name.

        Raises:
            KeyError: There is none.
        """
        return {spec.name: spec for spec in self.specs}[name]

    def by_difference(self, spec: str) -> list[GroupScore]:
        """Order a spec's finest groups by their difference to the baseline, the worst first."""
        groups = self.subtasks or self.tasks
        return sorted(
            (group for group in groups if group.spec == spec and group.difference),
            key=lambda group: group.difference.value if group.difference else 0.0,
        )

    def to_json(self) -> str:
        """Write it as JSON; `from_json` gives the same back."""
        return _ADAPTER.dump_json(self, indent=2).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> Evaluation:
        """Read what `to_json` wrote.

        Raises:
            ValueError: It is no evaluation.
        """
        return _ADAPTER.validate_json(text)


_ADAPTER = TypeAdapter(Evaluation)
