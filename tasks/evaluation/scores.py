"""The types of an evaluation: candidates on a manifest with known answers, each compared with a baseline.

Every accuracy is over the jobs with both a label and a known answer; failures are counted separately. Every difference
is paired: the candidate's accuracy minus the baseline's, over the jobs that both labelled.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A value with its 95% confidence interval, whose width is 0 if the value was counted."""

    value: float
    low: float
    high: float

    @property
    def is_exact(self) -> bool:
        return self.low == self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Difference in accuracy to the baseline, on the same jobs."""

    jobs: int  # that both labelled
    gained: int  # jobs that only this candidate answers correctly
    lost: int  # jobs that only the baseline answers correctly
    value: float  # accuracy minus the baseline's, -1 to 1
    low: float  # lower end of its 95% confidence interval: Tango's score interval for paired proportions
    high: float
    p_value: float  # McNemar's exact test, two-sided
    # The same, adjusted by Holm's method: of a subtask over all subtasks of a candidate, of a task over its tasks, and
    # of all jobs over the candidates.
    p_holm: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Cost of a candidate's labels, from its rows and the runs that wrote them; None if unknown."""

    wall_s: float | None = None  # seconds for which these runs had the engine loaded, excluding its start
    jobs_per_s: float | None = None  # jobs answered by these runs, divided by `wall_s`
    videos: int | None = None  # videos, or segments of videos, that the jobs are about
    videos_cached: int | None = None  # videos whose frames were already cached, and cost no decoding
    frames_decoded: int | None = None  # frames decoded for the others
    # Seconds of decoding and of the image-text model that selects frames, summed over processes.
    decode_s: float | None = None
    bytes_read: int | None = None  # bytes of videos fetched
    engine_s: float | None = None  # seconds of the engine, summed over jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateScore:
    """Scores of one candidate over all jobs."""

    name: str  # unique display name, such as `keyframes:16`
    spec_id: str
    model: str
    sampling: dict[str, Any]  # the spec's sampling as JSON values: `sampler`, `num_frames` and the others
    jobs: int  # with a known answer
    labels: int  # jobs of these with a label
    failures: int  # jobs of these that failed
    correct: int
    accuracy: Estimate | None  # fraction of correct labels, with Wilson's score interval; None without labels
    calibration_error: float | None  # expected calibration error, 0 to 1 (`tasks.evaluation.calibration`)
    low_mass: int = 0  # labels with a `choice_mass` below `LOW_CHOICE_MASS`
    difference: Difference | None = None  # None for the baseline, and if no job is labelled by both
    cost: Cost = field(default_factory=Cost)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupScore:
    """Scores of one candidate on the jobs of one task or subtask."""

    spec: str
    task: str | None
    subtask: str | None  # always None in `Evaluation.tasks`
    jobs: int  # with a label and a known answer, at least one
    correct: int  # jobs whose label is that answer
    accuracy: Estimate
    difference: Difference | None = None  # None for the baseline, and if no job is labelled by both

    @property
    def title(self) -> str:
        """Task and subtask; empty for jobs with neither."""
        return " / ".join(filter(None, (self.task, self.subtask)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Several candidates compared on one labelled manifest."""

    manifest_uri: str
    dataset: str  # of the results in the database
    created_at: str  # creation time, ISO 8601 in UTC
    jobs: int  # rows of the manifest
    known: int  # rows with a known answer; only they are evaluated
    baseline: str  # name of the candidate that the others are compared with
    specs: tuple[CandidateScore, ...]  # all candidates, in the order of the request
    # Scores by task: all candidates for the first task, then for the next; empty if no job has a task.
    tasks: tuple[GroupScore, ...]
    subtasks: tuple[GroupScore, ...]

    def by_difference(self, spec: str) -> list[GroupScore]:
        """Sort a candidate's subtasks, or else tasks, by their difference to the baseline, the worst first."""
        groups = self.subtasks or self.tasks
        return sorted(
            (group for group in groups if group.spec == spec and group.difference),
            key=lambda group: group.difference.value if group.difference else 0.0,
        )

    def to_json(self) -> str:
        return _ADAPTER.dump_json(self, indent=2).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> Evaluation:
        """Parse the output of `to_json`; raise ValueError if it is not an evaluation."""
        return _ADAPTER.validate_json(text)


_ADAPTER = TypeAdapter(Evaluation)


_LEAST_SHOWN = 0.001


def format_p_value(p_value: float) -> str:
    return f"<{_LEAST_SHOWN:g}" if p_value < _LEAST_SHOWN else f"{p_value:.3f}"
