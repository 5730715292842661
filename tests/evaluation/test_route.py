"""A margin is promised only as far as the sample proves it."""

from dataclasses import replace

import numpy as np
import pytest

from infra.errors import ManifestError
from tasks.evaluation.route import PairedAnswers, evaluate_margin, fit_route, prove_loss, prove_margin
from tasks.evaluation.significance import Z, paired_low


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
    sample = draw(np.random.default_rng(3), 160)

    proof = prove_margin(sample, 0.01)

    assert proof.below is None
    assert proof.overall.at_most > 0.02
    assert proof.enough_jobs == 381
    assert fit_route(sample, 0.01).proven is None


@pytest.mark.parametrize("jobs_per_video", [1, 3])
def test_a_proven_margin_misses_its_target_at_most_as_often_as_promised(jobs_per_video, true_loss):
    rng = np.random.default_rng(11)
    missed = 0
    for _ in range(150):
        sample = draw(rng, 900, jobs_per_video=jobs_per_video)
        below = prove_margin(sample, 0.01).below
        missed += below is not None and true_loss(below) > 0.01

    assert missed / 150 <= 0.06  # 2.5% are promised


def draw_surely_wrong(rng, videos=300, jobs_per_video=5):
    """Draw answers that are wrong one by one if unsure, and on all of a video, of two in a hundred, if sure."""
    jobs = videos * jobs_per_video
    margins, dense = rng.uniform(0, 1, jobs), rng.uniform(0, 1, jobs) < 0.95
    is_wrong = np.repeat(rng.uniform(0, 1, videos) < 0.02, jobs_per_video)
    first = np.where(margins < 0.5, rng.uniform(0, 1, jobs) < 0.6, dense & ~is_wrong)
    sample = draw(rng, jobs, jobs_per_video=jobs_per_video)
    return replace(sample, margins=margins, first_right=first, second_right=dense)


def test_a_margin_is_proven_as_promised_even_if_sure_answers_depend_on_their_video_more_than_others():
    rng = np.random.default_rng(5)
    missed = 0
    for _ in range(400):
        proof = prove_margin(draw_surely_wrong(rng), 0.008)
        below = proof.below
        assert below is None or proof.overall.at_most <= 0.008
        missed += below is not None and 0.02 * 0.95 * (1 - max(below, 0.5)) + 0.35 * max(0, 0.5 - below) > 0.008

    assert missed / 400 <= 0.05  # 2.5% are promised


def test_a_losing_task_is_not_hidden_by_the_others():
    sample = draw(np.random.default_rng(5), 3000)
    counting = sample.tasks == "counting"
    lost = counting & (np.arange(3000) % 60 == 0)
    sample = replace(sample, first_right=sample.first_right & ~lost, second_right=sample.second_right | lost)

    proof = prove_margin(sample, 0.02)

    assert proof.overall.at_most <= 0.02
    assert [task.name for task in proof.unproven(0.02)] == ["counting"]
    [counting_loss] = proof.unproven(0.02)
    assert counting_loss.jobs == 300
    assert counting_loss.at_least > 0.01
    assert prove_margin(sample.take(counting), 0.02).tasks == ()  # of one task alone, it is the loss of all


def test_no_margin_is_proven_lossless():
    assert prove_margin(draw(np.random.default_rng(5), 3000), 0).below is None


def test_the_interval_is_the_score_interval():
    low = paired_low(gained=np.array([0.0, 0.0]), lost=np.array([0.0, 1.0]), jobs=44.0)

    assert low[0] == pytest.approx(-(Z**2) / (44 + Z**2))
    assert low[1] == pytest.approx(-0.1181, abs=1e-4)


def test_jobs_of_one_video_prove_less():
    sample = draw(np.random.default_rng(5), 900, jobs_per_video=3)
    apart = replace(sample, videos=np.arange(900, dtype=np.uint64))

    assert prove_loss(sample, 0.5).at_most > prove_loss(apart, 0.5).at_most


def routed_jobs(jobs=400, seed=1):
    """Two jobs a video, of which the more are right at first, the larger their margin."""
    rng = np.random.default_rng(seed)
    margins = rng.uniform(0, 1, jobs)
    views = np.arange(jobs, dtype=np.uint64) // 2
    return replace(
        draw(rng, jobs, jobs_per_video=2),
        margins=margins,
        first_right=rng.uniform(0, 1, jobs) < 0.2 + 0.8 * np.minimum(1, 2 * margins),
        second_right=rng.uniform(0, 1, jobs) < 0.95,
        first_views=views,
        second_views=views,
    )


def test_answers_that_repeat_others_of_their_video_prove_nothing_more():
    sample = routed_jobs(2000)
    repeated = sample.take(np.repeat(np.arange(2000), 3))

    once, thrice = prove_margin(sample, 0.01), prove_margin(repeated, 0.01)

    assert once.below == thrice.below
    assert thrice.overall.at_most == pytest.approx(once.overall.at_most, abs=1e-4)


def test_jobs_that_were_shown_every_frame_are_never_escalated():
    routed = replace(routed_jobs(), margins=np.where(np.arange(400) % 2, np.inf, routed_jobs().margins))

    assert evaluate_margin(routed, 2.0).asked_again == 0.5


def test_a_fit_reports_what_is_saved_and_spent():
    fit = fit_route(routed_jobs(), 0.1)

    assert fit.first.accuracy < fit.target < fit.dense.accuracy
    assert fit.proven.accuracy >= fit.target
    assert (fit.first.frames_decoded, fit.dense.frames_decoded) == (200 * 4, 200 * 60)
    assert fit.first.frames_decoded < fit.proven.frames_decoded
    assert (fit.first.asked_again, fit.first.seconds) == (0, pytest.approx(40))


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        (
            routed_jobs(jobs=98),
            "Only 98 jobs with a known answer, on 49 videos, were answered both from keyframes and with",
        ),
        (replace(routed_jobs(), videos=np.zeros(400, np.uint64)), "on 1 videos"),
    ],
    ids=["jobs", "videos"],
)
def test_an_inconclusive_sample_is_refused(sample, message):
    with pytest.raises(ManifestError, match=message):
        fit_route(sample, 0.01)


def test_each_view_of_a_video_counts_the_frames_decoded_for_it():
    views = np.arange(400, dtype=np.uint64)
    margins = np.where(np.arange(400) < 3, 0.1, 0.9)
    sample = replace(
        routed_jobs(), margins=margins, first_views=views // 2, second_views=views, first_frames=np.repeat([4, 7], 200)
    )

    assert evaluate_margin(sample, 0.0).frames_decoded == 100 * 4 + 100 * 7
    assert evaluate_margin(sample, 0.5).frames_decoded == 100 * 4 + 100 * 7 + 3 * 60
    assert fit_route(sample, 0.01).dense.frames_decoded == 400 * 60
