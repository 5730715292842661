"""A margin is fitted on known answers and judged on held-out ones."""

from dataclasses import replace

import numpy as np
import pytest

from infra.errors import ManifestError
from reelabel.digest import hash64
from tasks.evaluation.route_fit import fit_margin, fit_route
from tasks.evaluation.route_proof import Target
from tasks.evaluation.route_sample import PairedAnswers


def asked(jobs=400, seed=1):
    """Jobs of which the more are right at first, the larger their margin; losslessly, 19 of 20 are."""
    rng = np.random.default_rng(seed)
    margins = rng.uniform(0, 1, jobs)
    return PairedAnswers(
        videos=np.array([hash64(f"v{number // 2}") for number in range(jobs)], np.uint64),
        tasks=np.full(jobs, ""),
        subtasks=np.full(jobs, ""),
        margins=margins,
        first_right=rng.uniform(0, 1, jobs) < 0.2 + 0.8 * np.minimum(1, 2 * margins),
        second_right=rng.uniform(0, 1, jobs) < 0.95,
        first_views=np.arange(jobs, dtype=np.uint64) // 2,
        second_views=np.arange(jobs, dtype=np.uint64) // 2,
        first_frames=np.full(jobs, 4),
        second_frames=np.full(jobs, 60),
        first_s=np.full(jobs, 0.1),
        second_s=np.full(jobs, 0.4),
    )


def test_the_smallest_margin_that_reaches_the_target_is_chosen():
    few = PairedAnswers(
        videos=np.arange(4, dtype=np.uint64),
        tasks=np.full(4, ""),
        subtasks=np.full(4, ""),
        margins=np.array([0.1, 0.2, 0.3, 0.4]),
        first_right=np.array([False, False, True, True]),
        second_right=np.array([True, True, True, False]),
        first_views=np.arange(4, dtype=np.uint64),
        second_views=np.arange(4, dtype=np.uint64),
        first_frames=np.ones(4, np.int64),
        second_frames=np.ones(4, np.int64),
        first_s=np.ones(4),
        second_s=np.ones(4),
    )

    assert 0.1 < fit_margin(few, Target(within=0)) < 0.1 + 1e-9
    assert fit_margin(few, Target(accuracy=0.5)) == 0.0
    assert fit_margin(few, Target(accuracy=0.8)) > 0.4  # all are right below 0.3, but not from there on


def test_jobs_that_were_shown_every_frame_are_never_escalated():
    sample = asked()
    routed = replace(sample, margins=np.where(np.arange(400) % 2, np.inf, sample.margins))

    assert fit_route(routed, Target(within=0)).curve[-1].asked_again == 0.5


def test_a_fit_reports_what_is_saved_and_spent():
    fit = fit_route(asked(), Target(within=0.02))

    assert fit.held_out.accuracy == pytest.approx(fit.dense.accuracy, abs=0.04)
    assert fit.first.accuracy < fit.target < fit.dense.accuracy
    assert (fit.first.frames_decoded, fit.dense.frames_decoded) == (200 * 4, 200 * 60)
    assert fit.first.frames_decoded < fit.held_out.frames_decoded < fit.dense.frames_decoded
    assert fit.first.seconds == pytest.approx(40)
    assert fit.curve[0] == fit.first
    assert fit.curve[-1].asked_again == 1
    assert [point.frames_decoded for point in fit.curve] == sorted(point.frames_decoded for point in fit.curve)


def test_the_reported_figures_come_from_held_out_jobs():
    sample = asked()
    first, second = sample.halves()

    fit = fit_route(sample, Target())

    assert set(first.videos).isdisjoint(second.videos)
    assert fit.half_below == (fit_margin(first, Target()), fit_margin(second, Target()))
    again = sample.margins < np.where(sample.is_first_half(), fit.half_below[1], fit.half_below[0])
    right = np.where(again, sample.second_right, sample.first_right)
    assert fit.held_out.accuracy == right.mean()


@pytest.mark.parametrize(
    ("sample", "target", "message"),
    [
        (
            asked(jobs=99),
            Target(),
            "Only 99 jobs with a known answer, on 50 videos, were asked both on keyframes and with the dense sampler",
        ),
        (replace(asked(), videos=np.zeros(400, np.uint64)), Target(), "on 1 videos"),
        (
            asked(),
            Target(accuracy=0.99),
            "The dense sampler itself reaches an accuracy of only 0.9[0-9]+, below the target",
        ),
    ],
)
def test_an_inconclusive_sample_is_refused(sample, target, message):
    with pytest.raises(ManifestError, match=message):
        fit_route(sample, target)


def test_each_view_of_a_video_counts_the_frames_decoded_for_it():
    views = np.arange(400, dtype=np.uint64)
    sample = replace(asked(), first_views=views // 2, second_views=views, first_frames=np.repeat([4, 7], 200))
    again = np.arange(400) < 3

    assert sample.count_first_frames() == 100 * 4 + 100 * 7
    assert sample.count_second_frames(again) == 3 * 60
    assert sample.count_second_frames(~again | again) == fit_route(sample, Target()).dense.frames_decoded == 400 * 60
