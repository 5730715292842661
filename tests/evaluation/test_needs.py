"""Tasks stay on keyframes only if their loss is certainly small."""

import numpy as np
import pytest

from reelabel.digest import hash64
from tasks.evaluation.route_needs import fit_still_tasks
from tasks.evaluation.route_sample import PairedAnswers

# Jobs right from keyframes, of how many; losslessly, all are.
KINDS = {
    ("scene", "colour"): (120, 120),
    ("scene", "shape"): (118, 120),
    ("motion", "late"): (80, 120),
    ("motion", "few"): (6, 6),
    ("look", "plain"): (900, 900),
    ("look", "blink"): (20, 30),
    ("", ""): (50, 100),
}


def asked(kinds=KINDS):
    tags = [kind for kind, (_, jobs) in kinds.items() for _ in range(jobs)]
    first_right = [number < right for right, jobs in kinds.values() for number in range(jobs)]
    jobs = len(tags)
    return PairedAnswers(
        videos=np.array([hash64(f"{number}.mp4") for number in range(jobs)], np.uint64),
        tasks=np.array([task for task, _ in tags]),
        subtasks=np.array([subtask for _, subtask in tags]),
        margins=np.full(jobs, 0.5),
        first_right=np.array(first_right),
        second_right=np.full(jobs, fill_value=True),
        first_views=np.arange(jobs, dtype=np.uint64),
        second_views=np.arange(jobs, dtype=np.uint64),
        first_frames=np.ones(jobs, np.int64),
        second_frames=np.full(jobs, 60),
        first_s=np.ones(jobs),
        second_s=np.ones(jobs),
    )


@pytest.fixture(scope="module")
def needs():
    return {need.name: need for need in fit_still_tasks(asked()).needs}


def test_tasks_that_lose_nothing_stay_on_keyframes(needs):
    assert needs["scene"].is_still
    assert needs["colour"].is_still
    assert (needs["late"].first, needs["late"].dense) == (pytest.approx(2 / 3), 1.0)
    assert not needs["motion"].is_still
    assert not needs["late"].is_still


def test_too_few_jobs_keep_no_task_on_keyframes(needs):
    assert needs["few"].difference.value == 0
    assert not needs["few"].is_still


def test_a_task_does_not_hide_a_losing_subtask(needs):
    assert needs["look"].difference.low > -0.05
    assert not needs["look"].is_still
    assert needs["plain"].is_still


def test_subtasks_of_a_task_that_stays_on_keyframes_are_not_listed():
    assert fit_still_tasks(asked()).tasks == ("scene", "plain")


def test_the_choice_is_judged_on_held_out_jobs():
    held_out = fit_still_tasks(asked()).held_out

    assert held_out.jobs > 900
    assert -0.01 < held_out.value <= 0


def test_nothing_is_judged_if_no_task_stays_on_keyframes():
    fit = fit_still_tasks(asked({("motion", "late"): (80, 120)}))

    assert (fit.tasks, fit.held_out) == ((), None)
