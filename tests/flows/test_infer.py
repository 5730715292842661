"""Stages on different machines: which plans a worker answers, and how shards pass from one stage to the other."""

import pytest

from flows.extract import _hand_over
from flows.infer import _are_answered_alike, _plans_of, _read_handed_over
from flows.shard.queue import MAX_ATTEMPTS, ServedPlans
from reelabel.errors import ConfigurationError, VideoUnreadableError
from tasks.database.tables import SPEC as SPEC_TABLE
from tasks.domain import ModelIdentity, View
from tasks.plans.extracted import ExtractedShard
from tasks.plans.lease import Work, finish_alone
from tasks.plans.plan import plan_state
from tests.flows.shard.test_queue import planned, source_of
from tests.plans.conftest import make_plan, run
from tests.results.rows import SPEC

__all__ = ["make_plan", "planned", "run", "source_of"]

OTHER = SPEC.model_copy(update={"model": ModelIdentity(name="other")})


@pytest.mark.parametrize(
    ("changed", "alike"),
    [
        ({}, True),
        ({"system_prompt": "Be brief."}, True),
        ({"model": OTHER.model}, False),
        ({"video_pruning_rate": 0.5}, False),
        ({"chat_template_args": {"enable_thinking": False}}, False),
        ({"engine_args": {"quantization": "fp8"}}, False),
    ],
)
def test_an_engine_answers_all_specs_for_which_it_would_be_loaded_alike(changed, alike):
    assert _are_answered_alike(SPEC, SPEC.model_copy(update=changed)) == alike


def test_a_worker_answers_the_plans_of_its_model(db, make_plan):
    with db.begin() as connection:
        connection.execute(SPEC_TABLE.insert().values(spec_id=OTHER.spec_id, body=OTHER.model_dump(mode="json")))
    plan, other = make_plan(), make_plan(spec_id=OTHER.spec_id)

    every, named = (ServedPlans(plan_id=each, idle_timeout_s=0, database=db) for each in (None, other.plan_id))

    assert _plans_of(every, SPEC.model) == [plan]
    assert _plans_of(every, OTHER.model) == [other]
    assert _plans_of(named, OTHER.model) == [other]
    with pytest.raises(
        ConfigurationError, match=f"Plan {other.plan_id} needs model other .*, but this worker has tiny"
    ):
        _plans_of(named, SPEC.model)


def test_a_shard_that_was_extracted_is_handed_over(db, planned, source_of):
    plan = planned(1)
    extracting, inferring = source_of(plan, Work.EXTRACT), source_of(plan, Work.INFER)
    leased = next(iter(extracting))
    fault = VideoUnreadableError("No video.")
    outcomes = {View(uri): fault for uri in leased.shard.video_uris}
    extracted = ExtractedShard(shard=leased.shard, outcomes=outcomes, spent_ms={}, between_s=(1.0, 2.0))

    assert _hand_over(extracting, leased, extracted)
    assert plan_state(db, plan.plan_id).extracted == 1
    found = _read_handed_over(inferring, next(iter(inferring)), SPEC)

    assert found.between_s == (1.0, 2.0)
    assert {view: str(each) for view, each in found.outcomes.items()} == dict.fromkeys(outcomes, "No video.")


def test_a_shard_whose_hand_over_is_lost_is_extracted_again(db, planned, source_of):
    plan = planned(1)
    finish_alone(db, next(iter(source_of(plan, Work.EXTRACT))).lease, state="extracted")
    inferring = source_of(plan, Work.INFER)

    assert _read_handed_over(inferring, next(iter(inferring)), SPEC) is None

    state = plan_state(db, plan.plan_id)
    assert (state.planned, state.extracted, state.leased) == (1, 0, 0)


def test_a_shard_whose_hand_over_is_lost_each_time_is_given_up(db, planned, source_of):
    plan, lost = planned(1), 0
    extracting, inferring = source_of(plan, Work.EXTRACT), source_of(plan, Work.INFER)
    while lost <= MAX_ATTEMPTS and (leased := next(iter(extracting), None)):
        finish_alone(db, leased.lease, state="extracted")
        assert _read_handed_over(inferring, next(iter(inferring)), SPEC) is None
        lost += 1

    assert lost == MAX_ATTEMPTS
    assert plan_state(db, plan.plan_id).failed == 1
