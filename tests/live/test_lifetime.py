"""The life of sessions, with a scripted model: limits, lost clients, records, and ends."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from infra.settings import LiveSettings
from reelabel_engine.errors import InferenceError
from tasks.live.media import FrameReader
from tasks.live.messages import ProtocolError, SessionResume
from tests.live.client import SHADES, Client, ask, config, frame, send_frames, start
from tests.live.scripted_model import ScriptedModel

pytestmark = pytest.mark.xdist_group("live_sessions")


def test_a_session_is_done_when_all_is_answered(begin):
    model = ScriptedModel()
    model.may_answer.clear()
    sessions = begin(model)
    client = Client(sessions.open(config()))
    send_frames(client, [0])
    client.send({"type": "video.query", "text": "?"})
    client.send({"type": "video.done"})
    with pytest.raises(ProtocolError, match="No message may follow"):
        client.send({"type": "video.query", "text": "?"})
    with pytest.raises(ProtocolError, match="No message may follow"):
        client.session.receive_data(b"\xff\xd8\xff")
    client.send({"type": "video.done"})  # said again
    model.may_answer.set()
    events = client.until("session.closed")
    kinds = [event["type"] for event in events if event["type"] != "response.text.delta"]
    assert kinds == ["response.start", "response.done", "response.text.done", "session.done", "session.closed"]
    assert events[-1]["reason"] == "done"
    client.session.handle('{"type": "ping"}')
    assert client.everything()[-1]["type"] == "session.closed", "nothing follows it"
    assert len(sessions) == 0
    assert not model.known


@pytest.mark.parametrize(
    ("limit", "reason", "code"),
    [
        ("_IDLE_S", "idle", "idle_timeout"),
        ("_TOTAL_S", "total_time", "limit_reached"),
    ],
)
def test_the_time_of_a_session_ends(begin, monkeypatch, limit, reason, code):
    monkeypatch.setattr(f"tasks.live.session.{limit}", 0.2)
    client = start(begin, None)
    events = client.until("session.closed")
    assert [events[-2]["code"], events[-2]["is_fatal"], events[-1]["reason"]] == [code, True, reason]


def test_a_session_whose_query_is_in_work_is_not_idle(begin):
    model = ScriptedModel()
    model.may_answer.clear()
    client = start(begin, model)
    send_frames(client, [0])
    client.send({"type": "video.query", "text": "?"})
    client.session._last_message_s -= 3600
    client.session.check_time()
    model.may_answer.set()
    client.until("response.done")
    client.session.check_time()
    assert ask(client)["query"] == 1


def test_a_session_whose_frames_wait_for_their_turn_is_not_idle(begin, monkeypatch):
    may_decode, decode = threading.Event(), FrameReader.read
    monkeypatch.setattr(FrameReader, "read", lambda reader, data: may_decode.wait() and decode(reader, data))
    client = start(begin)
    client.send(frame(0))
    client.send(frame(120))  # waits for the one before
    client.session._last_message_s -= 3600
    client.session.check_time()
    may_decode.set()
    assert [client.last("frame.ack")["status"] for _ in range(2)] == ["kept", "kept"]
    client.session.check_time()
    assert ask(client)["query"] == 0


def test_a_window_in_seconds_cannot_fill_the_memory(begin):
    client = start(begin, None, LiveSettings(max_window_frames=4), window_s=1e6, enable_frame_filter=False)
    for at in range(5):
        client.send(frame(SHADES[at], time_s=at))
        client.last("frame.ack")
    assert client.last("error")["code"] == "limit_reached"
    assert client.last("session.closed")["reason"] == "limit"


def test_more_sessions_than_allowed_are_refused_until_one_ends(begin):
    sessions = begin(None, None, 2)
    first = Client(sessions.open(config()))
    sessions.open(config())
    with pytest.raises(ProtocolError) as raised:
        sessions.open(config())
    assert raised.value.code == "too_many_sessions"
    first.send({"type": "video.done"})
    first.until("session.closed")
    assert sessions.open(config())


def test_a_session_that_is_being_opened_counts_as_one(begin):
    class Records(dict):
        def setdefault(self, session, record):
            with pytest.raises(ProtocolError, match="There are 1 sessions already"):
                sessions.open(config())
            return super().setdefault(session, record)

    records = Records()
    sessions = begin(None, None, 1, records)
    assert sessions.open(config()).session_id in records


def test_a_lost_client_has_time_to_come_back(begin):
    sessions = begin(None, LiveSettings(resume_s=3600))
    session = sessions.open(config())
    session.disconnect(session.connect())
    session._last_message_s -= 3600
    session.check_time()
    resume = SessionResume(type="session.resume", session_id=session.session_id, resume_token=session.token, last_seq=0)
    assert sessions.resume(resume).session_id == session.session_id
    session._lost_s -= 3601
    client = Client(session)
    assert client.last("session.closed")["reason"] == "client_lost"
    with pytest.raises(ProtocolError) as raised:
        sessions.resume(resume)
    assert raised.value.code == "resume_refused"


def test_a_session_that_is_done_waits_for_a_lost_client(begin):
    client = start(begin)
    send_frames(client, [0])
    question = {"type": "video.query", "text": "?", "query_id": "q"}
    client.session.disconnect(client.session.connect())
    client.send(question)
    client.send({"type": "video.done"})
    client.until("session.done")
    connection = client.session.connect()
    client.send(question | {"again": True})
    client.send({"type": "video.done"})
    assert [event["type"] for event in client.until("session.closed")] == ["session.closed"]
    client.session.disconnect(connection)


def test_a_session_that_is_done_does_not_wait_for_ever(begin):
    client = start(begin, None, LiveSettings(resume_s=0))
    client.session.disconnect(client.session.connect())
    client.send({"type": "video.done"})
    assert client.last("session.closed")["reason"] == "client_lost"


def test_the_end_of_a_connection_that_was_replaced_loses_no_client(begin):
    client = start(begin, None, LiveSettings(resume_s=0))
    replaced, connection = client.session.connect(), client.session.connect()
    client.session.disconnect(replaced)
    client.session.check_time()
    assert client.exchange(frame(0), "frame.ack")["status"] == "kept"
    client.session.disconnect(connection)


def test_events_that_a_client_missed_are_still_there(begin):
    client = start(begin)
    send_frames(client, [0])
    missed_from = client.seq
    client.session.disconnect(client.session.connect())
    client.send({"type": "video.query", "text": "?"})
    client.until("response.text.done")
    again = [json.loads(text) for _, text, _ in client.session.events.after(missed_from)]
    assert [event["seq"] for event in again] == list(range(missed_from + 1, client.seq + 1))
    assert again[-1]["text"] == "0"


@pytest.mark.parametrize("change", [{"resume_token": "wrong"}, {"session_id": "other"}, {"last_seq": 99}])
def test_only_who_knows_the_token_resumes_a_session(begin, change):
    sessions = begin()
    session = sessions.open(config())
    fields = {"session_id": session.session_id, "resume_token": session.token, "last_seq": 0} | change
    with pytest.raises(ProtocolError) as raised:
        sessions.resume(SessionResume(type="session.resume", **fields))
    assert raised.value.code == "resume_refused"


def test_an_answer_is_recorded_before_it_is_sent(begin):
    records = {}
    sessions = begin(None, None, 4, records)
    client = Client(sessions.open(config()))
    record = records[client.session.session_id]
    send_frames(client, [0, 0, 60])
    record.failures = 1
    assert ask(client, "first")["query"] == 0
    assert [(row["question"], row["query"]) for row in record.rows] == [("first", 0)]
    assert [time_s for time_s, _ in record.frames] == [0, 2]
    client.send({"type": "video.done"})
    client.until("session.closed")
    assert (record.reason, record.counts["frames_received"], record.counts["frames_similar"]) == ("done", 3, 1)


def test_an_answer_that_cannot_be_recorded_is_not_given(begin):
    records = {}
    sessions = begin(None, None, 4, records)
    client = Client(sessions.open(config()))
    send_frames(client, [0])
    records[client.session.session_id].failures = 99
    client.send({"type": "video.query", "text": "?"})
    events = client.until("error")
    assert events[-1]["code"] == "unavailable"
    assert "response.done" not in [event["type"] for event in events]


def test_a_query_that_fails_and_cannot_be_recorded_either_is_told_both(begin):
    records, model = {}, ScriptedModel()
    model.fails_with = InferenceError("No answer.")
    client = Client(begin(model, None, 4, records).open(config()))
    send_frames(client, [0])
    records[client.session.session_id].failures = 99
    error = client.exchange({"type": "video.query", "text": "?"}, "error")
    assert error["code"] == "query_failed"
    assert error["message"].startswith("No answer. The query's end cannot be recorded: ")


def test_sessions_at_once_see_nothing_of_each_other(begin):
    sessions = begin(None, None, 8)

    def talk(number):
        client = Client(sessions.open(config()))
        for turn in range(4):
            send_frames(client, SHADES[turn : turn + 1], first_s=100 * number + turn)
            assert ask(client)["text"] == " ".join(map(str, range(turn + 1)))
        client.send({"type": "video.done"})
        assert client.last("session.closed")["reason"] == "done"

    with ThreadPoolExecutor(8) as threads:
        for done in [threads.submit(talk, number) for number in range(8)]:
            done.result()


def test_a_session_that_begins_while_the_service_ends_is_ended_as_well(begin):
    is_begun, may_begin = threading.Event(), threading.Event()

    class SlowRecords(dict):
        def setdefault(self, session, record):
            is_begun.set()
            assert may_begin.wait(20)
            return super().setdefault(session, record)

    records = SlowRecords()
    sessions = begin(None, None, 4, records)
    opening = threading.Thread(target=sessions.open, args=(config(),))
    opening.start()
    assert is_begun.wait(20)
    closing = threading.Thread(target=sessions.close)
    closing.start()
    closing.join(0.1)
    may_begin.set()
    opening.join()
    closing.join()

    [record] = records.values()
    assert record.reason == "server_stopping"


def test_the_services_end_ends_its_sessions(begin):
    sessions = begin()
    client = Client(sessions.open(config()))
    sessions.close()
    assert client.last("session.closed")["reason"] == "server_stopping"
    with pytest.raises(ProtocolError):
        sessions.open(config())
