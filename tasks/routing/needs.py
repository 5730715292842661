"""Kinds of question that keyframes answer as well as all frames do, found on known answers.

A kind stays on keyframes where its loss is surely small (a test of non-inferiority: the whole 95% interval of the
paired difference lies above the bound), never because too few jobs show a loss.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tasks.evaluation.significance import difference_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from tasks.evaluation.scores import Difference
    from tasks.routing.sample import AskedTwice

SURELY_WITHIN = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What jobs of one task or subtask lose by keyframes.

    Attributes:
        name: The task or subtask.
        first: Share of them that is right from keyframes, 0 to 1.
        lossless: Share that is right losslessly.
        difference: The one minus the other.
        is_still: Whether keyframes are enough for them, however few.
    """

    name: str
    first: float
    lossless: float
    difference: Difference
    is_still: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StillFit:
    """Which kinds of question need no motion.

    Attributes:
        needs: Of each task, then of each subtask.
        tasks: Those that stay on keyframes; a subtask of such a task is not named again.
        held_out: Keyframes minus lossless sampling, over each half of the jobs that the other half's choice leaves on
            keyframes; None where it leaves none there.
    """

    needs: tuple[Need, ...] = field(repr=False)
    tasks: tuple[str, ...]
    held_out: Difference | None


def fit_still(sample: AskedTwice) -> StillFit:
    """Find the tasks and subtasks that any frame answers; jobs that were not shown keyframes first tell nothing."""
    sample = sample.take(np.isfinite(sample.margins))
    needs = _needs(sample)
    return StillFit(needs=needs, tasks=_still_tasks(sample, needs), held_out=_held_out(sample))


def _held_out(sample: AskedTwice) -> Difference | None:
    """Judge what each half of the videos would leave on keyframes by the jobs of the other half."""
    first, second = sample.halves()
    left = [
        judged.take(_has(judged, _still_tasks(fitted, _needs(fitted))))
        for fitted, judged in ((first, second), (second, first))
    ]
    asked = [np.concatenate([getattr(half, name) for half in left]) for name in ("first_right", "second_right")]
    return difference_of(*asked) if asked[0].size else None


def _needs(sample: AskedTwice) -> tuple[Need, ...]:
    return tuple(
        _need(sample.take(tags == name), name=name, among=others)
        for tags, others in ((sample.tasks, "subtasks"), (sample.subtasks, "tasks"))
        for name in np.unique(tags[tags != ""]).tolist()
    )


def _need(jobs: AskedTwice, *, name: str, among: str) -> Need:
    difference = difference_of(jobs.first_right, jobs.second_right)
    groups: npt.NDArray[np.str_] = getattr(jobs, among)
    # A large kind must not hide a small one within it that loses.
    loses = any(
        difference_of(jobs.first_right[groups == each], jobs.second_right[groups == each]).high < 0
        for each in np.unique(groups)
    )
    return Need(
        name=name,
        first=float(jobs.first_right.mean()),
        lossless=float(jobs.second_right.mean()),
        difference=difference,
        is_still=difference.low > -SURELY_WITHIN and not loses,
    )


def _still_tasks(sample: AskedTwice, needs: tuple[Need, ...]) -> tuple[str, ...]:
    names: list[str] = []
    for need in needs:
        rest = (sample.tasks == need.name) | (sample.subtasks == need.name)
        if need.is_still and (rest & ~_has(sample, names)).any():
            names.append(need.name)
    return tuple(names)


def _has(sample: AskedTwice, names: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Say which jobs are of one of some tasks or subtasks; shape (J,)."""
    return np.isin(sample.tasks, names) | np.isin(sample.subtasks, names)
