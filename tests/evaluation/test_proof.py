"""A margin is promised only as far as the sample proves it."""

from dataclasses import replace

import numpy as np
import pytest

from tasks.evaluation.route_fit import fit_margin, fit_route
from tasks.evaluation.route_proof import Target, prove_loss, prove_margin
from tasks.evaluation.route_sample import PairedAnswers
from tasks.evaluation.significance import Z, paired_low, proportion, wilson_low


def draw(rng, jobs, *, jobs_per_video=1):
    """Draw answers of which first ones are worse than dense ones, the more so the smaller their margin is.

    Jobs on one video share the luck of their answers.
    """
    videos = np.arange(jobs, dtype=np.uint64) // jobs_per_video
    margins = rng.uniform(0, 1, jobs)
    luck, other = (rng.uniform(size=jobs)[videos.astype(np.int64)] for _ in range(2))
    dense = 0.93
    first = dense - 0.5 * np.maximum(0, 0.6 - margins)
    return PairedAnswers(
        videos=videos,
        tasks=np.where(np.arange(jobs) % 10 == 0, "counting", "colour"),
        subtasks=np.full(jobs, ""),
        margins=margins,
        first_right=np.where(other < 0.9, luck, other) < first,
        second_right=luck < dense,
        first_views=videos,
        second_views=videos,
        first_frames=np.full(jobs, 4),
        second_frames=np.full(jobs, 60),
        first_s=np.full(jobs, 0.1),
        second_s=np.full(jobs, 0.4),
    )


@pytest.fixture(scope="module")
def true_loss():
    """Return a function from a margin to the loss of `draw`, measured on many jobs."""
    sample = draw(np.random.default_rng(99), 400_000)
    order = np.argsort(sample.margins)
    lost = sample.second_right[order].astype(float) - sample.first_right[order]
    kept = np.array([*np.cumsum(lost[::-1])[::-1], 0.0]) / len(lost)
    margins = sample.margins[order]
    return lambda below: kept[np.searchsorted(margins, below)]


def test_a_small_sample_proves_no_margin():
    """An estimate on 160 jobs promises one point, and is wrong about it half of the time."""
    sample = draw(np.random.default_rng(3), 160)

    proof = prove_margin(sample, Target(within=0.01))

    assert prove_loss(sample, fit_margin(sample, Target(within=0.01))).loss <= 0.01
    assert proof.below is None
    assert proof.overall.at_most > 0.02
    assert proof.enough_jobs == 381
    assert fit_route(sample, Target(within=0.01)).proven is None


@pytest.mark.parametrize("jobs_per_video", [1, 3])
def test_a_proven_margin_misses_its_target_at_most_as_often_as_promised(jobs_per_video, true_loss):
    rng = np.random.default_rng(11)
    missed = estimated = 0
    for _ in range(150):
        sample = draw(rng, 900, jobs_per_video=jobs_per_video)
        below = prove_margin(sample, Target(within=0.01)).below
        missed += below is not None and true_loss(below) > 0.01
        estimated += true_loss(fit_margin(sample, Target(within=0.01))) > 0.01

    assert missed / 150 <= 0.06  # 2.5% are promised
    assert estimated / 150 > 0.3


def test_a_losing_task_is_not_hidden_by_the_others():
    sample = draw(np.random.default_rng(5), 3000)
    counting = sample.tasks == "counting"
    lost = counting & (np.arange(3000) % 60 == 0)
    sample = replace(sample, first_right=sample.first_right & ~lost, second_right=sample.second_right | lost)

    proof = prove_margin(sample, Target(within=0.02))

    assert proof.overall.at_most <= 0.02
    assert [task.name for task in proof.unproven(0.02)] == ["counting"]
    [counting_loss] = proof.unproven(0.02)
    assert counting_loss.jobs == 300
    assert counting_loss.at_least > 0.01


def test_no_margin_is_proven_lossless():
    assert prove_margin(draw(np.random.default_rng(5), 3000), Target(within=0)).below is None


def test_an_accuracy_is_proven_by_the_lower_end_of_its_interval():
    sample = draw(np.random.default_rng(5), 3000)

    assert prove_margin(sample, Target(accuracy=0.93)).below is None
    below = prove_margin(sample, Target(accuracy=0.9)).below
    assert 0 < below < 0.7
    assert prove_margin(sample, Target(accuracy=0.8)).below < below


def test_the_interval_is_the_score_interval():
    low = paired_low(gained=np.array([0.0, 0.0]), lost=np.array([0.0, 1.0]), jobs=44.0)

    assert low[0] == pytest.approx(-(Z**2) / (44 + Z**2))
    assert low[1] == pytest.approx(-0.1181, abs=1e-4)
    assert wilson_low(np.array([40.0]), 50.0)[0] == pytest.approx(proportion(40, 50).low)


def test_jobs_of_one_video_prove_less():
    sample = draw(np.random.default_rng(5), 900, jobs_per_video=3)
    apart = replace(sample, videos=np.arange(900, dtype=np.uint64))

    assert prove_loss(sample, 0.5).at_most > prove_loss(apart, 0.5).at_most
