"""A run whose S3 store refuses most requests, as too many."""

import re
import time

import pytest

from tests.chaos.world import open_world
from tests.stub_server import serve_stub
from tests.wait import until

CLIPS = 24
LONGEST_S = 240


@pytest.mark.timeout(600)
def test_a_run_completes_though_its_store_refuses_three_of_four_requests(tmp_path):
    with serve_stub() as model, open_world(tmp_path, model_url=model) as world:
        manifest, jobs = world.upload(CLIPS, seed=4)
        log_path = tmp_path / "run.log"

        def labels():
            with world.connection() as connection:
                [known] = connection.execute("SELECT to_regclass('reelabel.result')").fetchone()
                return known and connection.execute("SELECT count(*) FROM reelabel.result").fetchone()[0]

        with log_path.open("wb") as log, world.store.busy(3, of=4) as requests:
            began_s = time.monotonic()
            run = world.start_run(["classify", manifest], log, REELABEL_STORE_READ_TIMEOUT_S="60")
            until(lambda: labels() or run.poll() is not None, LONGEST_S, details=log_path.read_text)
            exit_code = run.wait(timeout=LONGEST_S)
            took_s, request_count = time.monotonic() - began_s, requests()

        output = log_path.read_text()
        assert exit_code == 0, output
        assert f"Reconciled: {len(jobs):,} jobs = {len(jobs):,} labels + 0 failures." in output
        assert not re.search(r"Retrying in|Traceback", output), output
        assert request_count > 4 * CLIPS
        assert took_s < LONGEST_S, output
