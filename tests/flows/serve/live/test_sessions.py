"""Live sessions over the WebSocket of a real service, with the demo's tiny model."""

import base64
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import psutil
import pytest
from sqlalchemy import select
from websockets.exceptions import ConnectionClosed

from infra.database.connect import connect
from tasks.database.live_tables import LIVE_QUERY, LIVE_SESSION
from tests.flows.serve.live.client import TOKEN, Client, send_frames, send_nonsense
from tests.flows.serve.served import serving
from tests.live.client import picture
from tests.wait import until

pytestmark = pytest.mark.system
CHOICES = ["red", "green", "blue", "yellow"]


@pytest.fixture(scope="module")
def served(own_environment):
    settings = {
        "REELABEL_SERVE_LOAD": '["live"]',
        "REELABEL_SERVE_TOKEN": TOKEN,
        "REELABEL_LIVE_RESUME_S": "15",
    }
    with serving(own_environment | settings) as served:
        yield served


@pytest.fixture(scope="module")
def rows(own_services):
    """Return a function that reads the rows of a session."""
    engine = connect(own_services.database)

    def rows(session_id):
        with engine.connect() as connection:
            sessions = connection.execute(select(LIVE_SESSION).where(LIVE_SESSION.c.session_id == session_id))
            queries = select(LIVE_QUERY).where(LIVE_QUERY.c.session_id == session_id).order_by(LIVE_QUERY.c.query)
            return sessions.mappings().one(), connection.execute(queries).mappings().all()

    yield rows
    engine.dispose()


@pytest.fixture(scope="module")
def lost(served):
    """The id of a session whose client vanishes, long before it is looked at."""
    client = Client(served.url, {})
    send_frames(client, [0])
    client.vanish()
    return client.created["session_id"]


@pytest.mark.usefixtures("lost")
def test_a_session_of_many_turns_is_answered_and_recorded(served, rows):
    with Client(served.url, {"sampling": {"max_tokens": 8}, "window": 64}) as client:
        for turn in range(4):
            send_frames(client, [20 + 50 * turn, 40 + 50 * turn], first_s=2 * turn)
            free = client.ask("What is there?")
            chosen = client.ask(choices=CHOICES)
            assert free["frames_used"] == chosen["frames_used"] == 2 * (turn + 1)
            assert free["output_tokens"] <= 8
            assert chosen["text"] == CHOICES[chosen["choice"]]
            assert sum(chosen["probabilities"]) == pytest.approx(1)
        send_frames(client, [0, 120] * 20, first_s=8)
        client.ask(choices=CHOICES)  # it may arrive before all frames are prefilled
        chosen = client.ask(choices=CHOICES)
        assert chosen["cached_tokens"] > chosen["prompt_tokens"] / 2, "what was prefilled is kept"
        assert client.end()["reason"] == "done"
        with pytest.raises(ConnectionClosed) as closed:
            client.next()
        assert closed.value.rcvd.code == 1000
    assert [event["seq"] for event in client.events] == list(range(1, len(client.events) + 1))
    session, queries = rows(client.created["session_id"])
    done = [event for event in client.events if event["type"] == "response.done"]
    assert [row["answer"] for row in queries] == [event["text"] for event in done]
    assert (session["frames_kept"], session["reason"]) == (48, "done")


def test_metrics_count_sessions_frames_and_answers(served):
    with Client(served.url, {}) as client:
        send_frames(client, [0, 0, 100, 200])
        client.ask(choices=CHOICES)
        answer = httpx.get(f"{served.url}/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    values = dict(line.rsplit(" ", 1) for line in answer.text.splitlines() if line.startswith("reelabel_live"))
    assert float(values["reelabel_live_sessions"]) >= 1
    assert float(values['reelabel_live_frames_total{status="kept"}']) >= 3
    assert float(values['reelabel_live_frames_total{status="similar"}']) >= 1
    assert float(values['reelabel_live_answers_total{outcome="answered"}']) >= 1
    for name in ("prefill_lag", "first_token"):
        assert float(values[f"reelabel_live_{name}_seconds_count"]) >= 1


def test_a_published_client_works_unchanged(served):
    """Speak as vLLM-Omni's example does: no event is read before the query, and the last one is session.done."""
    with Client(served.url) as client:
        brief = {"num_frames": 32, "sampling_params_list": [{"max_tokens": 32}]}
        client.send({"type": "session.config", "model": None, "modalities": ["text"], **brief})
        for shade in (0, 80, 160):
            client.send({"type": "video.frame", "data": base64.b64encode(picture(shade)).decode()})
            time.sleep(0.05)
        client.send({"type": "video.query", "text": "Describe what you see in the video."})
        text = ""
        while (event := client.next())["type"] != "response.text.done":
            text += event.get("delta", "")
            assert event["type"] != "error"
        assert event["text"] == text
        client.send({"type": "video.done"})
        assert client.next()["type"] == "session.done"


def test_sessions_at_once_are_answered_as_alone(served):
    shades = {name: [10 + 30 * name, 120 + 20 * name, 250 - 15 * name] for name in range(4)}

    def talk(name):
        with Client(served.url, {}) as client:
            send_frames(client, shades[name])
            return client.ask(choices=CHOICES)["probabilities"]

    alone = {name: talk(name) for name in shades}
    with ThreadPoolExecutor(len(shades)) as threads:
        together = dict(zip(shades, threads.map(talk, shades), strict=True))
    for name in shades:
        assert together[name] == pytest.approx(alone[name], abs=1e-3)


def test_a_client_that_comes_back_gets_what_it_missed(served, rows):
    client = Client(served.url, {})
    send_frames(client, [0, 100])
    client.send({"type": "video.query", "text": "What is there?", "choices": CHOICES})
    client.vanish()
    last_seq, created = client.events[-1]["seq"], client.created
    until(lambda: rows(created["session_id"])[1])  # it is answered while nobody listens
    with Client(served.url) as again:
        again.send(
            {
                "type": "session.resume",
                "session_id": created["session_id"],
                "resume_token": created["resume_token"],
                "last_seq": last_seq,
            }
        )
        assert again.last("response.done")["text"] in CHOICES
        assert again.last("session.created")["is_resumed"]
        assert [event["seq"] for event in again.events] == list(range(last_seq + 1, again.events[-1]["seq"] + 1))
        send_frames(again, [200], first_s=2)
        assert again.ask(choices=CHOICES)["frames_used"] == 3
        assert again.end()["reason"] == "done"


def engine_processes(served):
    """Return the engines, without the renderers that they fork."""
    children = psutil.Process(served.process.pid).children()
    return [child for child in children if "-m reelabel_engine" in " ".join(child.cmdline())]


def test_a_killed_engine_is_replaced_and_the_query_answered(served):
    with Client(served.url, {}) as client:
        send_frames(client, [0, 60, 120, 180])
        before = client.ask(choices=CHOICES)["probabilities"]
        (engine,) = engine_processes(served)
        engine.kill()
        client.send({"type": "video.query", "text": "What is its colour?", "choices": CHOICES})
        done = client.last("response.done")
        assert done["probabilities"] == pytest.approx(before, abs=1e-3)
        notices = [event["code"] for event in client.events if event["type"] == "session.notice"]
        assert notices[:1] == ["engine_lost"]
        send_frames(client, [240], first_s=4)
        assert client.ask(choices=CHOICES)["frames_used"] == 5


def test_ten_thousand_mutated_messages_harm_nobody(served):
    """A fuzzer beside a session that is left alone: no crash, no hang, and the session is answered as before."""
    with Client(served.url, {}) as bystander:
        send_frames(bystander, [0, 60, 120])
        before = bystander.ask(choices=CHOICES)["probabilities"]
        engines = [engine.pid for engine in engine_processes(served)]
        with ThreadPoolExecutor(4) as threads:
            connections = sum(threads.map(lambda seed: send_nonsense(served.url, messages=2500, seed=seed), range(4)))
        assert bystander.ask(choices=CHOICES)["probabilities"] == pytest.approx(before, abs=1e-4)
        bystander.end()
    assert served.process.poll() is None
    assert connections < 2500, "most messages are refused without the end of a session"
    assert [engine.pid for engine in engine_processes(served)] == engines, "no engine was lost"
    assert not [line for line in served.lines if "Traceback" in line], served.lines[-40:]


def test_a_client_that_does_not_come_back_is_recorded_as_lost(lost, rows):
    until(lambda: rows(lost)[0]["ended_at"])
    assert rows(lost)[0]["reason"] == "client_lost"


def test_the_services_end_ends_its_sessions_and_records_why(served, rows):
    """The last test: the service has ended when it has."""
    with Client(served.url, {}) as client:
        send_frames(client, [0, 100])
        assert served.end(signal.SIGTERM) == 0
        assert client.last("session.closed")["reason"] == "server_stopping"
        with pytest.raises(ConnectionClosed) as closed:
            client.next()
        assert closed.value.rcvd.code == 1012
    assert served.lines[-1] == "Stopped."
    session, _ = rows(client.created["session_id"])
    assert (session["frames_kept"], session["reason"]) == (2, "server_stopping")
