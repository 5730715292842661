import random

import pytest

from tests.chaos.suite import run_suite


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("engine", "trials"), [("vllm", 2), ("openai", 10)])
def test_no_job_is_lost_or_answered_otherwise_whatever_breaks(tmp_path, engine, trials):
    seed = random.SystemRandom().randrange(10**6)

    outcomes = list(run_suite(tmp_path, trials=trials, seed=seed, engine=engine, clips=100))

    assert [outcome for outcome in outcomes if outcome.wrong] == [], f"seed {seed}"
    assert len(outcomes) == trials
    assert any(outcome.struck for outcome in outcomes)
