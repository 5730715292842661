"""Outages of Postgres and the object store longer than the retries; takes minutes."""

import time

import pytest

from tests.chaos.world import open_world
from tests.wait import until

CLIPS = 100
AWAY_S = 75


@pytest.mark.timeout(600)
@pytest.mark.xdist_group("long-waits")  # which begin first: most of their time is idle
def test_a_run_survives_an_outage_of_postgres_and_the_store_and_says_what_it_waits_for(tmp_path):
    with open_world(tmp_path, model_url=None) as world:
        manifest, jobs = world.upload(CLIPS, seed=3)

        def has_labels():
            with world.connection() as connection:
                known = connection.execute("SELECT to_regclass('reelabel.result')").fetchone()
                return known[0] and connection.execute("SELECT 1 FROM reelabel.result LIMIT 1").fetchone()

        log_path = tmp_path / "run.log"
        with log_path.open("wb") as log:
            run = world.start_run(["classify", manifest], log)
            until(has_labels, 120)
            with world.database.shut(), world.store.shut():
                time.sleep(AWAY_S)
                assert run.poll() is None, log_path.read_text()
            exit_code = run.wait(timeout=300)

        output = log_path.read_text()
        assert exit_code == 0, output
        assert f"Reconciled: {len(jobs):,} jobs = {len(jobs):,} labels + 0 failures." in output
        assert "Retrying in 30 s." in output
