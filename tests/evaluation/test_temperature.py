"""The temperature that calibrates probabilities."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.errors import ManifestError
from reelabel.digest import hash64
from tasks.evaluation.calibration import (
    MAX_TEMPERATURE,
    MIN_TEMPERATURE,
    KnownAnswers,
    apply_temperature,
    calibrate,
    calibrate_probabilities,
    expected_calibration_error,
    fit_temperature,
    log_table,
    temperature_interval,
)

distributions = st.lists(st.floats(0.01, 1), min_size=2, max_size=6).map(lambda row: [x / sum(row) for x in row])
temperatures = st.floats(MIN_TEMPERATURE, MAX_TEMPERATURE)


def draw_known(sharpness, *, jobs=4000, seed=0):
    """Draw answers from true probabilities, and tell them `sharpness` times as surely as they are."""
    rng = np.random.default_rng(seed)
    true = rng.dirichlet(np.ones(4), size=jobs)
    truths = [int(rng.choice(4, p=row)) for row in true]
    stated = calibrate_probabilities(true.tolist(), 1 / sharpness)
    return KnownAnswers.of(
        [(row, truth, f"{number // 2}.mp4") for number, (row, truth) in enumerate(zip(stated, truths, strict=True))]
    )


@pytest.mark.parametrize("sharpness", [0.5, 1.0, 3.0])
def test_the_temperature_undoes_overconfidence(sharpness):
    assert fit_temperature(draw_known(sharpness)) == pytest.approx(sharpness, rel=0.1)


def test_no_other_temperature_makes_the_answers_more_likely():
    known = draw_known(2.0, jobs=300)

    def likelihood(temperature):
        return np.log(apply_temperature(known.logs, temperature)[np.arange(300), known.truths]).sum()

    fitted = fit_temperature(known)
    assert likelihood(fitted) >= max(likelihood(other) for other in np.geomspace(MIN_TEMPERATURE, MAX_TEMPERATURE, 500))


def test_if_every_answer_is_correct_the_temperature_stops_at_its_lower_bound():
    assert fit_temperature(KnownAnswers.of([([0.6, 0.4], 0, "a"), ([0.3, 0.7], 1, "b")])) == pytest.approx(
        MIN_TEMPERATURE
    )


def test_if_every_answer_is_wrong_it_stops_at_its_upper_bound():
    assert fit_temperature(KnownAnswers.of([([0.6, 0.4], 1, "a"), ([0.3, 0.7], 0, "b")])) == pytest.approx(
        MAX_TEMPERATURE
    )


@given(st.lists(distributions, min_size=1, max_size=5), temperatures)
def test_calibrated_probabilities_sum_to_one_and_keep_their_order(rows, temperature):
    for raw, changed in zip(rows, calibrate_probabilities(rows, temperature), strict=True):
        assert len(changed) == len(raw)
        assert sum(changed) == pytest.approx(1)
        assert np.all(np.diff(np.array(changed)[np.argsort(raw)]) >= -1e-12)


@given(distributions)
def test_a_temperature_of_one_changes_nothing(row):
    assert calibrate_probabilities([row], 1.0)[0] == pytest.approx(row)


def test_a_probability_of_zero_can_be_calibrated():
    assert calibrate_probabilities([[1.0, 0.0]], 0.5)[0] == pytest.approx([1, 0])
    assert np.isfinite(log_table([[1.0, 0.0]])).all()


def test_the_error_is_the_gap_of_each_bin_weighted_by_its_size():
    confidences = np.array([0.95, 0.95, 0.95, 0.95, 0.55, 0.55])
    is_right = np.array([True, True, False, False, True, False])

    assert expected_calibration_error(confidences, is_right) == pytest.approx(4 / 6 * 0.45 + 2 / 6 * 0.05)


def test_a_bin_includes_its_upper_edge():
    # 2/3 and 0.65 share the tenth of 15 bins, so that their errors cancel; 0.68 lies in the next.
    right_and_wrong = np.array([True, False])

    assert expected_calibration_error(np.array([2 / 3, 0.65]), right_and_wrong) == pytest.approx(0.3167 / 2, abs=1e-3)
    assert expected_calibration_error(np.array([0.68, 0.65]), right_and_wrong) == pytest.approx((0.32 + 0.65) / 2)


def test_the_lowest_and_the_highest_bins_are_apart():
    assert expected_calibration_error(np.array([0.05, 0.1]), np.array([True, False])) == pytest.approx((0.95 + 0.1) / 2)
    assert expected_calibration_error(np.array([0.9, 0.99]), np.array([True, False])) == pytest.approx((0.1 + 0.99) / 2)


def test_overconfidence_is_detected_and_corrected_on_held_out_jobs():
    found = calibrate(draw_known(3.0))

    assert found.jobs == 4000
    assert found.confidence_before > found.accuracy + 0.1
    assert found.confidence_after == pytest.approx(found.accuracy, abs=0.03)
    assert found.ece_before > 0.1
    assert found.ece_after < 0.03
    assert found.nll_after < found.nll_before


def test_a_temperature_that_makes_held_out_answers_worse_is_refused():
    # One half is right more often than its probabilities say, the other less: each half's temperature harms the other.
    first, second = KnownAnswers.of([([0.8, 0.2], 0, str(number)) for number in range(80)]).halves()
    wrong = [np.arange(40) % every == 0 for every in (8, 2)]
    known = KnownAnswers(
        logs=np.concatenate([first.logs, second.logs]),
        truths=np.concatenate(wrong).astype(np.int64),
        videos=np.concatenate([first.videos, second.videos]),
    )

    with pytest.raises(ManifestError, match="Calibration makes held-out answers worse"):
        calibrate(known)


def test_no_video_is_in_both_halves_whatever_the_order_of_jobs():
    rows = [([0.5, 0.5], 0, f"{number % 9}.mp4") for number in range(90)]

    first, second = KnownAnswers.of(rows).halves()
    turned, _ = KnownAnswers.of(rows[::-1]).halves()

    assert not set(first.videos) & set(second.videos)
    assert len(first.truths) + len(second.truths) == 90
    assert set(turned.videos) == set(first.videos)


def test_halves_are_the_same_on_any_machine_and_store_no_inline_video():
    inline = "data:video/mp4;base64," + "A" * 100_000
    videos = [*(f"{number}.mp4" for number in range(7)), inline]

    known = KnownAnswers.of([([0.5, 0.5], 0, video) for video in videos])

    first = set(known.halves()[0].videos.tolist())
    assert [video for video in videos if hash64(video) in first] == ["1.mp4", "2.mp4", "3.mp4", inline]
    assert known.videos.nbytes == 8 * len(videos)


def with_wrong(wrong, *, jobs=200, confidence=0.8):
    """Labels of one confidence, some of them wrong."""
    rows = [([confidence, 1 - confidence], int(number < wrong), f"{number}.mp4") for number in range(jobs)]
    return KnownAnswers.of(rows)


@pytest.mark.parametrize("wrong", [0, 1, 19])
def test_too_few_wrong_labels_fit_no_temperature(wrong):
    verb = "is" if wrong == 1 else "are"
    with pytest.raises(ManifestError, match=rf"of 200 labels with a known answer, {wrong} {verb} wrong; at least 20"):
        calibrate(with_wrong(wrong))


@pytest.mark.parametrize(("known", "count"), [(with_wrong(150), "150 of 200"), (with_wrong(100), "100 of 200")])
def test_a_temperature_at_a_bound_is_refused(known, count):
    with pytest.raises(ManifestError, match=f"where it does not generalise to other jobs .{count} labels"):
        calibrate(known)


def test_a_fit_reports_its_uncertainty():
    found = calibrate(draw_known(3.0, jobs=600))

    assert found.temperature_low < 3.0 < found.temperature_high
    assert found.temperature_low < found.temperature < found.temperature_high
    assert found.nll_change == pytest.approx(found.nll_after - found.nll_before)
    assert found.nll_change_low < found.nll_change < found.nll_change_high < 0
    assert found.wrong == round((1 - found.accuracy) * 600)


def test_a_model_that_needs_no_calibration_is_not_reported_as_improved():
    found = calibrate(draw_known(1.0, jobs=600))

    assert found.nll_change_high > 0


@pytest.mark.parametrize("jobs_per_video", [1, 4])
def test_nineteen_of_twenty_intervals_contain_the_true_temperature(jobs_per_video):
    """Jobs of one video share the luck of their answer, so that four tell no more than one."""
    rng = np.random.default_rng(7)
    held = 0
    for _ in range(300):
        true = rng.dirichlet(np.ones(4), size=80)
        truths = (true.cumsum(axis=1) < rng.uniform(size=(80, 1))).sum(axis=1)
        videos = np.arange(80, dtype=np.uint64)
        logs = np.log(apply_temperature(np.log(true), 0.5))
        known = KnownAnswers(
            logs=np.maximum(logs, -27).repeat(jobs_per_video, axis=0),
            truths=truths.repeat(jobs_per_video),
            videos=videos.repeat(jobs_per_video),
        )
        low, high = temperature_interval(known, fit_temperature(known))
        held += low <= 2.0 <= high

    assert 0.91 <= held / 300 <= 0.985
