"""Find tasks that keyframes answer as well as a dense sampler does, from known answers.

A task stays on keyframes only if its loss is provably small (a non-inferiority test: the whole 95% interval of the
paired difference lies above the bound), never because too few jobs show a loss.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tasks.evaluation.significance import paired_difference

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from tasks.evaluation.route_sample import PairedAnswers
    from tasks.evaluation.scores import Difference

NON_INFERIORITY_BOUND = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskMotionNeed:
    """What the jobs of one task or subtask lose on keyframes.

    Attributes:
        name: The task or subtask.
        first: Accuracy on keyframes, 0 to 1.
        dense: Accuracy with the dense sampler, 0 to 1.
        difference: The former minus the latter.
        is_still: Whether keyframes are enough, however few.
    """

    name: str
    first: float
    dense: float
    difference: Difference
    is_still: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StillFit:
    """Which tasks need no motion.

    Attributes:
        needs: One per task, then one per subtask.
        tasks: Tasks and subtasks that stay on keyframes; subtasks of such a task are not listed.
        held_out: Keyframes minus dense sampler, over the jobs of each half that the choice fitted on the other half
            leaves on keyframes; None if there are none.
    """

    needs: tuple[TaskMotionNeed, ...] = field(repr=False)
    tasks: tuple[str, ...]
    held_out: Difference | None


def fit_still_tasks(sample: PairedAnswers) -> StillFit:
    """Find the tasks and subtasks that any frame answers; jobs that were not asked on keyframes are ignored."""
    sample = sample.take(np.isfinite(sample.margins))
    needs = _needs(sample)
    return StillFit(needs=needs, tasks=_still_tasks(sample, needs), held_out=_held_out(sample))


def _held_out(sample: PairedAnswers) -> Difference | None:
    """Evaluate the choice fitted on each half of the videos on the jobs of the other half."""
    first, second = sample.halves()
    still = [
        held_out.take(_has(held_out, _still_tasks(fitted, _needs(fitted))))
        for fitted, held_out in ((first, second), (second, first))
    ]
    is_right = [np.concatenate([getattr(half, name) for half in still]) for name in ("first_right", "second_right")]
    return paired_difference(*is_right) if is_right[0].size else None


def _needs(sample: PairedAnswers) -> tuple[TaskMotionNeed, ...]:
    return tuple(
        _need(sample.take(tags == name), name=name, among=others)
        for tags, others in ((sample.tasks, "subtasks"), (sample.subtasks, "tasks"))
        for name in np.unique(tags[tags != ""]).tolist()
    )


def _need(jobs: PairedAnswers, *, name: str, among: str) -> TaskMotionNeed:
    difference = paired_difference(jobs.first_right, jobs.second_right)
    groups: npt.NDArray[np.str_] = getattr(jobs, among)
    # A large task must not hide a small subtask that loses.
    loses = any(
        paired_difference(jobs.first_right[groups == each], jobs.second_right[groups == each]).high < 0
        for each in np.unique(groups)
    )
    return TaskMotionNeed(
        name=name,
        first=float(jobs.first_right.mean()),
        dense=float(jobs.second_right.mean()),
        difference=difference,
        is_still=difference.low > -NON_INFERIORITY_BOUND and not loses,
    )


def _still_tasks(sample: PairedAnswers, needs: tuple[TaskMotionNeed, ...]) -> tuple[str, ...]:
    names: list[str] = []
    for need in needs:
        rest = (sample.tasks == need.name) | (sample.subtasks == need.name)
        if need.is_still and (rest & ~_has(sample, names)).any():
            names.append(need.name)
    return tuple(names)


def _has(sample: PairedAnswers, names: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Return which jobs belong to one of these tasks or subtasks; shape (J,)."""
    return np.isin(sample.tasks, names) | np.isin(sample.subtasks, names)
