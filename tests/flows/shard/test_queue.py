"""What happens to shards that cannot be processed."""

import json
import threading
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import count
from types import SimpleNamespace

import pytest
import sqlalchemy
from prefect.logging import disable_run_logger

from flows.shard import queue, retry
from flows.shard.queue import MAX_ATTEMPTS, ServedPlans, ShardQueue
from infra.database import connect as database
from infra.database.connect import connect
from infra.errors import DatabaseUnavailableError, PlanForeignError, PlanLostError
from infra.settings import DatabaseSettings, StoreSettings
from reelabel.errors import ConfigurationError, DiskFullError, StoreUnavailableError
from reelabel.sampling.options import Sampling
from reelabel.seal import NO_KEY, Seal
from reelabel.sources.object_store import ObjectStore
from tasks.database.tables import SPEC as SPEC_TABLE
from tasks.domain import DescribeSpec, EmbeddingSpec, ModelIdentity
from tasks.manifest.digests import jobs_to_rows
from tasks.manifest.plan_file import PlanWriter
from tasks.plans.lease import LeaseKeeper, Work, claim, finish_alone
from tasks.plans.plan import close_plan, is_drained, open_plans, plan_state
from tests.plans.conftest import make_plan, run
from tests.results.rows import SPEC, job

__all__ = ["make_plan", "run"]

SEAL = Seal(b"a key of the tests, with 32 bytes.")


@pytest.fixture
def source_of(db):
    """Make a source of a plan's shards that ends when nothing is to be taken."""
    objects = ObjectStore(StoreSettings())
    with disable_run_logger(), LeaseKeeper(db, holder="here", lease_s=600) as keeper:

        def source_of(plan, work=Work.BOTH, **options):
            return ShardQueue(
                keeper=keeper,
                objects=objects,
                seal=SEAL,
                database=db,
                work=work,
                plans=lambda: [plan],
                has_ended=lambda _: is_drained(db, plan.plan_id),
                **options,
            )

        yield source_of


@pytest.fixture
def planned(make_plan, tmp_path):
    """A plan with its files."""

    def planned(shards, objects=None, root=f"file://{tmp_path}", seal=SEAL):
        plan = make_plan(shards=shards, plan_uri=f"{root}/p")
        with PlanWriter(objects or ObjectStore(StoreSettings()), plan.plan_uri, seal=seal) as writer:
            for index in range(shards):
                writer.add(jobs_to_rows([job(str(index))]), [1])
        return plan

    return planned


def away():
    raise StoreUnavailableError("The store is away.")


def test_a_shard_that_keeps_failing_is_given_up_and_the_others_go_on(db, planned, source_of):
    plan, tries = planned(3), 0
    source = source_of(plan)
    for leased in source:
        if leased.shard.index == 0:
            tries += 1
            assert source.run_or_release(leased, away) is None
        else:
            assert source.run_or_release(leased, lambda: "done") == "done"
            finish_alone(db, leased.lease, state="done")

    assert tries == MAX_ATTEMPTS
    state = plan_state(db, plan.plan_id)
    assert (state.done, state.failed, state.jobs_left) == (2, 1, 100)


def test_where_shard_after_shard_fails_the_cause_is_reported(db, planned, source_of):
    plan = planned(9)
    source = source_of(plan)

    def work():
        for leased in source:
            source.run_or_release(leased, away)

    with pytest.raises(StoreUnavailableError, match="The store is away"):
        work()
    assert plan_state(db, plan.plan_id).failed <= 1


def test_shards_that_fail_while_others_end_do_not_end_the_run(db, planned, source_of):
    count, failed = 2 * MAX_ATTEMPTS, set()
    plan = planned(count)
    source = source_of(plan)
    for leased in source:
        if leased.shard.index in failed:
            assert source.run_or_release(leased, lambda: "done") == "done"
            finish_alone(db, leased.lease, state="done")
        else:
            failed.add(leased.shard.index)
            assert source.run_or_release(leased, away) is None

    assert plan_state(db, plan.plan_id).done == count == len(failed)


def test_a_full_disk_ends_the_run_and_no_shard_is_given_up(db, planned, source_of):
    plan = planned(2)
    source = source_of(plan)

    def finds_no_space():
        raise DiskFullError("The disk of /videos is full.")

    with pytest.raises(DiskFullError, match="/videos"):
        source.run_or_release(next(iter(source)), finds_no_space)
    assert plan_state(db, plan.plan_id).failed == 0


def test_a_service_that_was_waited_for_in_vain_is_not_waited_for_with_the_next_shard(planned, source_of):
    source = source_of(planned(2))

    def raise_unavailable():
        error = StoreUnavailableError("The store stays away.")
        error.retries_exhausted = True
        raise error

    with pytest.raises(StoreUnavailableError, match="stays away"):
        source.run_or_release(next(iter(source)), raise_unavailable)


@contextmanager
def away_for_a_moment(db):
    """Hold all three connections of a db for a second and a half."""
    leased = [db.connect() for _ in range(3)]
    release = threading.Timer(1.5, lambda: [connection.close() for connection in leased])
    release.start()
    yield
    release.join()
    db.dispose()


@pytest.fixture
def busy_engine(database_url, monkeypatch):
    monkeypatch.setattr(database, "_TIMEOUT_S", 1)
    return connect(DatabaseSettings(url=database_url), pool_size=3)


def test_shards_are_taken_on_after_the_database_was_away_for_a_moment(busy_engine, planned, source_of):
    plan = planned(1)
    shards = iter(replace(source_of(plan), keeper=LeaseKeeper(busy_engine, holder="here", lease_s=600)))

    with away_for_a_moment(busy_engine):
        with pytest.raises(DatabaseUnavailableError):
            plan_state(busy_engine, plan.plan_id)
        assert next(shards).shard.index == 0


def test_a_shard_is_given_up_after_the_database_was_away_for_a_moment(db, busy_engine, planned, source_of):
    plan = planned(1)
    lease = claim(db, plan.plan_id, Work.BOTH, holder="here", lease_s=600)

    with away_for_a_moment(busy_engine):
        replace(source_of(plan), database=busy_engine)._give_up(lease)

    assert plan_state(db, plan.plan_id).failed == 1


def test_a_shard_is_given_back_after_the_database_was_away_for_a_moment(db, busy_engine, planned, source_of):
    plan = planned(1)
    with LeaseKeeper(busy_engine, holder="here", lease_s=600) as keeper:
        source = replace(source_of(plan), keeper=keeper)
        leased = next(iter(source))
        with away_for_a_moment(busy_engine):
            assert source.run_or_release(leased, away) is None

    lease = claim(db, plan.plan_id, Work.BOTH, holder="there", lease_s=600)
    assert (lease.attempts, lease.message) == (1, "The store is away.")


def test_shards_are_read_on_after_the_store_was_away_for_a_moment(
    planned, source_of, objects, store_settings, store_gate
):
    plan = planned(1, objects, store_settings.uri)
    gated = {"endpoint_url": f"http://127.0.0.1:{store_gate.port}", "max_attempts": 1}
    shards = iter(replace(source_of(plan), objects=ObjectStore(replace(store_settings, **gated))))

    outage = ExitStack()
    outage.enter_context(store_gate.shut())
    threading.Timer(1.0, outage.close).start()

    assert next(shards).shard.index == 0


def test_a_shard_that_its_store_does_not_give_is_given_up(
    db, planned, source_of, objects, store_settings, store_gate, monkeypatch
):
    monkeypatch.setattr(retry, "RETRY_DELAYS_S", (0.01,))
    plan = planned(2, objects, store_settings.uri)
    gated = {"endpoint_url": f"http://127.0.0.1:{store_gate.port}", "max_attempts": 1}
    shards = iter(replace(source_of(plan), objects=ObjectStore(replace(store_settings, **gated))))
    bucket, _, prefix = store_settings.uri.removeprefix("s3://").partition("/")

    with store_gate.refusing(f"GET /{bucket}/{prefix}/p", 500, "InternalError"), pytest.raises(StoreUnavailableError):
        next(shards)

    state = plan_state(db, plan.plan_id)
    assert state.failed == 1


def test_extraction_pauses_while_enough_waits_and_goes_on_after(db, planned, source_of):
    plan = planned(4)
    shards = iter(source_of(plan, Work.EXTRACT, max_pending=2))
    for _ in range(2):
        finish_alone(db, next(shards).lease, state="extracted")

    assert next(shards) is None
    lease = claim(db, plan.plan_id, Work.INFER, holder="there", lease_s=600)
    finish_alone(db, lease, state="done")

    assert next(shards).shard.index == 2


def test_a_paused_queue_is_not_idle(db, planned, source_of, monkeypatch):
    clock, idle_s, source = count(), [], source_of(planned(2), Work.EXTRACT, max_pending=1)
    source.has_ended = idle_s.append
    monkeypatch.setattr(queue, "time", SimpleNamespace(monotonic=lambda: next(clock), sleep=lambda _: None))
    shards = iter(source)
    finish_alone(db, next(shards).lease, state="extracted")

    assert [next(shards) for _ in range(3)] == [None] * 3
    assert idle_s == [1, 1, 1]

    source.max_pending = None
    source.keeper.claim = lambda *_: None
    assert [next(shards) for _ in range(3)] == [None] * 3
    assert idle_s == [1, 1, 1, 2, 3, 4]


def test_a_plan_whose_files_are_gone_is_dropped_for_the_next_run_to_plan_anew(db, make_plan, source_of, tmp_path):
    plan = make_plan(plan_uri=f"file://{tmp_path}/nowhere")

    with pytest.raises(PlanLostError):
        next(iter(source_of(plan)))

    assert open_plans(db) == []


def test_a_plan_whose_files_were_altered_is_dropped_and_none_of_its_jobs_is_run(db, planned, source_of):
    plan, objects = planned(1), ObjectStore(StoreSettings())
    [file] = objects.list(plan.plan_uri)
    objects.replace(file.uri, objects.read(file.uri)[:300])

    with pytest.raises(PlanLostError, match="was altered"):
        next(iter(source_of(plan)))

    assert open_plans(db) == []


def test_a_worker_with_another_key_stops_and_leaves_the_plan_to_others(db, planned, source_of):
    plan = planned(1, seal=NO_KEY)

    with pytest.raises(PlanForeignError, match=r"another store\.mac_key"):
        next(iter(source_of(plan, skip_lost_plans=True)))

    assert open_plans(db) == [plan]


def test_who_serves_all_plans_goes_on_with_the_others_where_the_files_of_one_are_gone(
    db, make_plan, planned, source_of, tmp_path
):
    lost, plan = make_plan(plan_uri=f"file://{tmp_path}/nowhere"), planned(1)
    source = replace(source_of(plan), plans=lambda: [lost, plan], skip_lost_plans=True)

    assert next(iter(source)).plan == plan

    assert open_plans(db) == [plan]


def test_a_shard_is_not_given_up_where_its_plan_was_dropped_meanwhile(db, planned, source_of):
    plan = planned(1)
    lease = claim(db, plan.plan_id, Work.BOTH, holder="here", lease_s=600)
    close_plan(db, plan.plan_id, state="dropped")

    source_of(plan)._give_up(lease)


def test_who_serves_all_plans_leaves_those_of_another_version_to_others(db, make_plan):
    with db.begin() as connection:
        body = {"model": {"name": "tiny"}, "option_of_tomorrow": True}
        text = "INSERT INTO reelabel.spec (spec_id, body) VALUES ('newer', CAST(:body AS jsonb))"
        connection.execute(sqlalchemy.text(text), {"body": json.dumps(body)})
    newer, plan = make_plan(spec_id="newer"), make_plan()

    with disable_run_logger():
        assert ServedPlans(plan_id=None, idle_timeout_s=0, database=db).plans() == [plan]

    named = ServedPlans(plan_id=newer.plan_id, idle_timeout_s=0, database=db)
    assert named.plans() == [newer]
    with pytest.raises(ConfigurationError, match="Spec newer was created by another version of Reelabel"):
        named.spec_of(newer)
    assert ServedPlans(plan_id=plan.plan_id, idle_timeout_s=0, database=db).spec_of(plan) == SPEC


def test_who_serves_all_plans_leaves_those_of_descriptions_to_their_runs(db, make_plan, caplog):
    spec = DescribeSpec(model=ModelIdentity(name="siglip"), tags="t", captions="c", scene_threshold=1.0)
    with db.begin() as connection:
        connection.execute(SPEC_TABLE.insert().values(spec_id=spec.spec_id, body=spec.model_dump(mode="json")))
    described = [make_plan(spec_id=spec.spec_id, kind=kind) for kind in ("describe", "backfill")]
    plan = make_plan()

    assert ServedPlans(plan_id=None, idle_timeout_s=0, database=db).plans() == [plan]

    assert caplog.text == ""
    named = ServedPlans(plan_id=described[0].plan_id, idle_timeout_s=0, database=db)
    with pytest.raises(ConfigurationError, match="is of a run that describes videos"):
        named.spec_of(described[0])


def test_who_serves_all_plans_leaves_those_with_an_image_text_model_to_their_runs(db, make_plan):
    relevance = EmbeddingSpec(model=ModelIdentity(name="siglip"))
    spec = SPEC.model_copy(update={"sampling": Sampling(sampler="relevant", num_frames=4), "relevance": relevance})
    with db.begin() as connection:
        connection.execute(SPEC_TABLE.insert().values(spec_id=spec.spec_id, body=spec.model_dump(mode="json")))
    chosen, plan = make_plan(spec_id=spec.spec_id), make_plan()

    with disable_run_logger():
        assert ServedPlans(plan_id=None, idle_timeout_s=0, database=db).plans() == [plan]

    named = ServedPlans(plan_id=chosen.plan_id, idle_timeout_s=0, database=db)
    with pytest.raises(ConfigurationError, match=f"The sampler relevant of plan {chosen.plan_id} needs an image-text"):
        named.spec_of(chosen)
