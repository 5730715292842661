"""Questions of real sessions, replayed offline on exactly the frames that each saw, with the same answer."""

import numpy as np
import pytest
from sqlalchemy import select

from infra.database.connect import connect
from tasks.database.live_tables import LIVE_QUERY, LIVE_SESSION
from tasks.database.tables import RESULT
from tests.command_line import reelabel as run_command
from tests.flows.serve.live.client import Client
from tests.flows.serve.served import serving
from tests.live.client import frame

pytestmark = pytest.mark.system
CHOICES = ["red", "green", "blue", "yellow"]
ASKED_AT = (8, 16, 24, 49)
SESSIONS = {
    "everything": {"window": 100, "enable_frame_filter": False},
    "evicted": {"window": 8, "sink": 2, "enable_frame_filter": False},
    "some": {"window": 100, "num_frames": 5, "sink": 2, "enable_frame_filter": False},
}


def show(url, config):
    """Show frames at uneven times, with gaps of a minute and of hours, and ask in between; return the id."""
    rng = np.random.default_rng(7)
    times_s = np.cumsum(rng.uniform(0.03, 1.7, max(ASKED_AT)))
    times_s[20:] += 60
    times_s[40:] += 7200
    with Client(url, config) as client:
        for number, time_s in enumerate(times_s, 1):
            client.send(frame(int(rng.integers(256)), time_s=time_s))
            if number in ASKED_AT:
                client.ask(choices=CHOICES)
                client.ask(text="What is there?", sampling={"max_tokens": 2})
        client.end()
    return client.created["session_id"]


@pytest.fixture(scope="module")
def shown(own_environment):
    """The ids of the sessions by name."""
    settings = {"REELABEL_SERVE_LOAD": '["live"]', "REELABEL_SERVE_TOKEN": "a-token-of-some-length"}
    with serving(own_environment | settings) as served:
        return {name: show(served.url, config) for name, config in SESSIONS.items()}


@pytest.mark.parametrize("name", SESSIONS)
def test_offline_the_same_frames_get_the_same_answer(own_environment, own_services, shown, name):
    run = run_command(own_environment, "classify", "--session", shown[name])

    assert run.returncode == 0, run.stdout + run.stderr
    assert "4 questions of the session to replay. 4 questions left out: it has no choices." in run.stdout
    assert "keyframe" not in run.stdout
    engine = connect(own_services.database)
    with engine.connect() as connection:
        session_id = LIVE_SESSION.c.session_id == shown[name]
        live = select(LIVE_QUERY).where(LIVE_QUERY.c.session_id == shown[name], LIVE_QUERY.c.choices.is_not(None))
        queries = connection.execute(live.order_by(LIVE_QUERY.c.query)).mappings().all()
        kept = connection.execute(select(LIVE_SESSION.c.frames_kept).where(session_id)).scalar_one()
        found = select(RESULT).where(RESULT.c.dataset == f"live-{shown[name]}")
        results = {row["job_id"]: row for row in connection.execute(found).mappings()}
    engine.dispose()
    assert kept == max(ASKED_AT)
    assert len(queries) == len(results) == len(ASKED_AT)
    assert (name == "everything") == (len(queries[-1]["frames"]) == max(ASKED_AT))
    for query, frames_before in zip(queries, ASKED_AT, strict=True):
        result = results[f"query-{query['query']}"]
        assert query["frames"][-1] == frames_before - 1
        assert result["frames_used"] == len(query["frames"])
        assert result["prompt_tokens"] == query["prompt_tokens"]
        assert result["probabilities"] == pytest.approx(query["probabilities"], abs=1e-6)
        assert result["coverage"] == ""
