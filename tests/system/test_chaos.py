import random

import pytest

from tests.chaos.faults import FAULTS
from tests.chaos.suite import run_suite


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("engine", "trials"), [("vllm", 2), ("openai", 10), ("encoder", 3)])
def test_no_job_is_lost_or_answered_differently_whatever_breaks(tmp_path, engine, trials):
    seed = random.SystemRandom().randrange(10**6)

    outcomes = list(run_suite(tmp_path, trials=trials, seed=seed, engine=engine, clips=100))

    assert [outcome for outcome in outcomes if outcome.wrong] == [], f"seed {seed}"
    assert len(outcomes) == trials
    assert any(outcome.struck for outcome in outcomes)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("engine", "trials"), [("live", 2), ("live-stub", 5)])
def test_no_answer_of_a_live_session_is_lost_whatever_breaks(tmp_path, engine, trials):
    seed = random.SystemRandom().randrange(10**6)

    outcomes = list(run_suite(tmp_path, trials=trials, seed=seed, engine=engine, clips=0))

    assert [outcome for outcome in outcomes if outcome.wrong] == [], f"seed {seed}"
    assert all(outcome.answered and outcome.struck for outcome in outcomes)


@pytest.mark.timeout(1200)
def test_no_label_comes_from_a_forged_frame_or_index_file(tmp_path):
    outcomes = _outcomes_of_altering(tmp_path, trials=2, faults={each.name for each in FAULTS if each.needs == "cache"})

    assert all(outcome.rewritten == outcome.altered > 0 for outcome in outcomes)


@pytest.mark.timeout(1200)
def test_no_label_comes_from_a_forged_plan_file(tmp_path):
    outcomes = _outcomes_of_altering(
        tmp_path, trials=3, faults={each.name for each in FAULTS if each.name.startswith("plan files")}
    )

    assert any(outcome.struck for outcome in outcomes)


def _outcomes_of_altering(folder, *, trials, faults):
    seed = random.SystemRandom().randrange(10**6)
    outcomes = list(run_suite(folder, trials=trials, seed=seed, engine="openai", clips=30, faults=faults))
    assert [outcome for outcome in outcomes if outcome.wrong] == [], f"seed {seed}"
    return outcomes
