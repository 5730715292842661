import secrets
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import text

from infra.database.connect import connect
from infra.errors import LeaseLostError
from infra.settings import DatabaseSettings
from tasks.plans.lease import LeaseKeeper, Work, claim, finish, finish_alone, holder_name, release, renew
from tasks.plans.plan import close_plan, is_drained, plan_state
from tasks.results.runs import close_lost_runs, open_run
from tests.chaos.gate import Gate
from tests.results.rows import FACTS, SPEC
from tests.wait import until

LONG_S = 600
_DONE = "SELECT attempts, message FROM reelabel.shard WHERE state = 'done'"
SHORT_S = 0.05


def take(db, plan, work=Work.BOTH, lease_s=LONG_S, limit=1):
    claimed = (claim(db, plan.plan_id, work, holder="here", lease_s=lease_s) for _ in range(limit))
    return [lease for lease in claimed if lease]


def test_concurrent_claims_never_get_the_same_shard(database_url, make_plan):
    plan = make_plan(shards=400)
    db = connect(DatabaseSettings(url=database_url), pool_size=8)

    def take_until_none_is_left(_):
        taken = []
        while leases := take(db, plan, limit=3):
            taken += leases
        return taken

    with ThreadPoolExecutor(8) as threads:
        by_claimer = list(threads.map(take_until_none_is_left, range(8)))
    db.dispose()

    taken = [lease for leases in by_claimer for lease in leases]
    assert Counter(lease.shard_index for lease in taken) == Counter(range(400))
    assert len({lease.token for lease in taken}) == 400
    assert all(lease.jobs == 100 for lease in taken)


def test_a_shard_goes_from_extraction_to_inference_and_is_done(db, make_plan):
    plan = make_plan(shards=1)
    assert take(db, plan, Work.INFER) == []

    (extracting,) = take(db, plan, Work.EXTRACT)
    assert take(db, plan, Work.EXTRACT) == take(db, plan, Work.INFER) == []
    finish_alone(db, extracting, state="extracted")
    assert take(db, plan, Work.EXTRACT) == []
    (inferring,) = take(db, plan, Work.INFER)
    finish_alone(db, inferring, state="done")

    assert inferring.token > extracting.token
    assert take(db, plan) == []
    assert is_drained(db, plan.plan_id)
    state = plan_state(db, plan.plan_id)
    assert (state.done, state.leased, state.jobs_left, state.is_drained) == (1, 0, 0, True)


def test_a_worker_for_both_stages_takes_extracted_shards_first(db, make_plan):
    plan = make_plan(shards=3)
    first, second, _ = take(db, plan, Work.EXTRACT, limit=3)
    finish_alone(db, second, state="extracted")
    release(db, first, message="The store is away.")

    assert [take(db, plan)[0].shard_index for _ in range(2)] == [1, 0]


def test_an_expired_shard_is_claimed_and_its_old_holder_cannot_finish_it(db, make_plan):
    plan = make_plan(shards=1)
    (lost,) = take(db, plan, lease_s=SHORT_S)
    time.sleep(2 * SHORT_S)
    assert plan_state(db, plan.plan_id).leased == 0

    (taken,) = take(db, plan)

    assert taken.token > lost.token
    assert (lost.attempts, taken.attempts) == (0, 1)
    assert renew(db, [lost, taken], lease_s=LONG_S) == {taken.token}
    with pytest.raises(LeaseLostError, match="Lease of shard 0 lost"):
        finish_alone(db, lost, state="done")
    release(db, lost, message="The store is away.")
    assert plan_state(db, plan.plan_id).leased == 1


def test_an_expired_lease_is_valid_until_another_worker_claims_the_shard(db, make_plan):
    (lease,) = take(db, make_plan(shards=1), lease_s=SHORT_S)
    time.sleep(2 * SHORT_S)

    finish_alone(db, lease, state="done")


def test_finishing_twice_under_the_same_lease_is_allowed(db, make_plan):
    plan = make_plan(shards=1)
    (lease,) = take(db, plan)

    for _ in range(2):
        finish_alone(db, lease, state="done")

    assert plan_state(db, plan.plan_id).done == 1


def test_leases_of_a_run_whose_process_was_killed_expire_at_once(db, run, make_plan):
    plan = make_plan(shards=3)
    code = "from infra.processes import own_process; print(own_process(), flush=True); input()"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as own:
        process = own.stdout.readline().strip()
        open_run(db, run_id=run.run_id, spec=SPEC, facts=FACTS | {"process": process})
        # The second one in a container whose name and process ids are the same.
        holders = [holder_name(FACTS["host"], name) for name in (process, f"another {process}")]
        for holder in holders:
            claim(db, plan.plan_id, Work.BOTH, holder=holder, lease_s=LONG_S)
        done = claim(db, plan.plan_id, Work.BOTH, holder=holders[0], lease_s=LONG_S)
        finish_alone(db, done, state="done")
        close_lost_runs(db)
        assert take(db, plan) == []
        own.kill()

    close_lost_runs(db)

    [lease] = take(db, plan, limit=2)
    assert (lease.shard_index, lease.attempts) == (0, 1)
    assert lease.message == f"Worker lost or stalled: {holders[0]}."
    with db.connect() as connection:
        [(attempts, message)] = connection.execute(text(_DONE))
    assert (attempts, message) == (0, "")


def test_a_released_shard_stores_the_reason_and_counts_an_attempt(db, make_plan):
    plan = make_plan(shards=1)
    (first,) = take(db, plan)
    for _ in range(2):  # again, as after a lost reply: the attempt counts once
        release(db, first, message="The store is away.")
    assert renew(db, [first], lease_s=LONG_S) == set()

    (second,) = take(db, plan)

    assert (second.attempts, second.message) == (1, "The store is away.")


def test_a_keeper_renews_leases_and_releases_them_at_exit(db, make_plan):
    plan = make_plan(shards=2)
    with LeaseKeeper(db, holder="here", lease_s=0.3) as keeper:
        ended = keeper.claim(plan.plan_id, Work.BOTH)
        keeper.claim(plan.plan_id, Work.BOTH)
        time.sleep(0.8)
        assert take(db, plan) == []
        finish_alone(db, ended, state="done")
        keeper.forget(ended)

    assert [lease.shard_index for lease in take(db, plan)] == [1]


def test_a_keeper_releases_at_exit_what_it_has_claimed_without_knowing_it(db, make_plan):
    plan = make_plan(shards=3)
    with LeaseKeeper(db, holder="here", lease_s=LONG_S):
        (unknown,) = take(db, plan)  # as if a signal had interrupted its claim
        claim(db, plan.plan_id, Work.BOTH, holder="elsewhere", lease_s=LONG_S)

    assert [lease.shard_index for lease in take(db, plan, limit=3)] == [unknown.shard_index, 2]


def test_a_keeper_does_not_wait_for_a_shard_that_is_being_written(db, make_plan):
    plan = make_plan(shards=2)
    with LeaseKeeper(db, holder="here", lease_s=LONG_S) as keeper:
        written = keeper.claim(plan.plan_id, Work.BOTH)
        keeper.claim(plan.plan_id, Work.BOTH)
        writing = db.connect()
        finish(writing, written, state="done")

    assert [lease.shard_index for lease in take(db, plan, limit=2)] == [1]
    writing.commit()
    writing.close()
    assert plan_state(db, plan.plan_id).done == 1


def test_a_keeper_does_not_claim_its_own_shards_after_a_long_outage_of_the_database(db, make_plan):
    plan, lease_s = make_plan(shards=1), 1
    gate = Gate(db.url.port)
    beyond = connect(DatabaseSettings(url=db.url.set(port=gate.port).render_as_string(hide_password=False)))
    with LeaseKeeper(beyond, holder="here", lease_s=lease_s) as keeper:
        held = keeper.claim(plan.plan_id, Work.BOTH)
        with gate.shut():
            time.sleep(1.5 * lease_s)

        assert keeper.claim(plan.plan_id, Work.BOTH) is None
        assert take(db, plan) == []
        finish_alone(db, held, state="done")
        keeper.forget(held)
    beyond.dispose()
    gate.close()


def test_a_keeper_that_was_stopped_for_longer_than_a_lease_does_not_claim_its_own_shards(db, make_plan):
    plan = make_plan(shards=1)
    keeper = LeaseKeeper(db, holder="a", lease_s=0.1)  # which renews nothing, as it was not entered
    lease = keeper.claim(plan.plan_id, Work.BOTH)
    time.sleep(0.2)

    assert keeper.claim(plan.plan_id, Work.BOTH) is None

    keeper.forget(lease)
    assert keeper.claim(plan.plan_id, Work.BOTH).shard_index == lease.shard_index


def test_a_keeper_renews_again_after_its_login_was_refused(db, make_plan):
    plan, name = make_plan(shards=1), f"keeper_{secrets.token_hex(4)}"

    def execute(statement):
        with db.begin() as connection:
            connection.execute(text(statement))

    execute(f"CREATE ROLE {name} LOGIN SUPERUSER PASSWORD 'first'")
    url = db.url.set(username=name, password="first").render_as_string(hide_password=False)
    own = connect(DatabaseSettings(url=url))
    with LeaseKeeper(own, holder="here", lease_s=0.6) as keeper:
        held = keeper.claim(plan.plan_id, Work.BOTH)
        execute(f"ALTER ROLE {name} PASSWORD 'another'")
        execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{name}'")
        until(lambda: keeper._is_overdue)  # a refusal leaves no other trace
        execute(f"ALTER ROLE {name} PASSWORD 'first'")
        until(lambda: not keeper._is_overdue)
        finish_alone(db, held, state="done")
        keeper.forget(held)
    own.dispose()
    execute(f"DROP ROLE {name}")


def test_closing_a_plan_revokes_its_leases(db, make_plan):
    plan = make_plan(shards=3)
    done, lease = take(db, plan, limit=2)
    finish_alone(db, done, state="done")

    assert close_plan(db, plan.plan_id, state="dropped")
    assert not close_plan(db, plan.plan_id, state="done")

    assert take(db, plan) == []
    with pytest.raises(LeaseLostError):
        finish_alone(db, lease, state="done")
    state = plan_state(db, plan.plan_id)
    assert (state.done, state.failed) == (1, 2)
