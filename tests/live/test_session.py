"""Sessions, with a scripted model: their first event, answers, notices, and losses of the engine."""

import json

import pytest

from infra.settings import LiveSettings
from reelabel_engine.errors import InferenceError, PromptTooLongError
from tasks.live.messages import ProtocolError
from tests.live.client import SHADES, Client, ask, config, frame, picture, send_frames, start
from tests.live.scripted_model import ScriptedModel
from tests.wait import until

pytestmark = pytest.mark.xdist_group("live_sessions")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {"window": 25, "window_s": None, "sink": 0, "num_frames": None, "history": 8}),
        ({"window": 10, "sink": 2, "num_frames": 3}, {"window": 10, "window_s": None, "sink": 2, "num_frames": 3}),
        ({"window_s": 2.5, "history": 0}, {"window": None, "window_s": 2.5, "history": 0}),
        ({}, {"frame_filter_threshold": 0.95, "is_resumed": False, "seq": 1, "model": "scripted"}),
        ({"enable_frame_filter": False}, {"frame_filter_threshold": None}),
        ({}, {"takes_audio": False, "modalities": ["text"], "resume_s": LiveSettings().resume_s}),
    ],
)
def test_a_session_says_first_what_it_does(begin, fields, expected):
    session = begin().open(config(**fields))
    created = Client(session).last("session.created")

    assert {name: created[name] for name in expected} == expected
    assert (created["session_id"], created["resume_token"]) == (session.session_id, session.token)
    assert created["limits"] == {
        "idle_s": 60,
        "total_s": 86_400,
        "max_frame_pixels": 16_000_000,
        "max_message_bytes": 16 * 1024**2,
    }


def test_a_client_gets_the_counts_of_its_session(begin):
    client = start(begin, window=2, enable_frame_filter=True)
    pictures = [picture(shade) for shade in (0, 0, 60, 120, 180, 240)]
    for at, data in enumerate(pictures):
        client.send({"type": "video.frame", "time_s": at})
        client.session.receive_data(data)
        client.until("frame.ack")
    client.send(frame(0, time_s=1.5))
    assert client.last("frame.ack")["status"] == "evicted"
    client.send({"type": "video.frame", "time_s": 6})
    client.session.receive_data(b"no picture")
    client.last("error")
    ask(client)
    client.last("response.text.done")

    stats = client.exchange({"type": "session.stats"}, "session.stats")
    assert stats.pop("age_s") > 0
    assert stats.pop("seq") == client.seq
    assert stats == {
        "type": "session.stats",
        "frames": 8,
        "kept": 5,
        "similar": 1,
        "evicted": 1,
        "refused": 1,
        "left_window": 2,
        "in_window": 3,
        "audio_s": 0,
        "queries": 1,
        "answered": 1,
        "waiting": 0,
        "bytes": sum(map(len, pictures)) + len(picture(0)) + len(b"no picture"),
        "pixels": 7 * 56 * 56,
        "engine_restarts": 0,
    }


def test_a_ping_is_answered(begin):
    assert start(begin).exchange({"type": "ping"}, "pong")["type"] == "pong"


def test_a_query_sees_the_frames_before_it_and_is_answered_in_pieces(begin):
    client = start(begin)
    send_frames(client, [0, 60, 120])
    client.send({"type": "video.query", "text": "Which?", "query_id": "q7"})
    events = client.until("response.text.done")
    assert [event["type"] for event in events] == [
        "response.start",
        *["response.text.delta"] * 3,
        "response.done",
        "response.text.done",
    ]
    assert "".join(event.get("delta", "") for event in events).strip() == "0 1 2" == events[-1]["text"]
    done = events[-2]
    assert (done["query"], done["query_id"], done["frames_used"], done["last_frame"]) == (0, "q7", 3, 2)
    assert (done["first_frame_s"], done["last_frame_s"], done["evicted"], done["cached_tokens"]) == (0, 2, 0, 8)
    assert done["total_ms"] >= done["first_token_ms"] > 0


def test_a_query_with_choices_has_probabilities_and_no_pieces(begin):
    model = ScriptedModel()
    client = start(begin, model)
    send_frames(client, [0])
    client.send({"type": "video.query", "text": "Which?", "choices": ["red", "blue"]})
    events = client.until("response.text.done")
    assert [event["type"] for event in events] == ["response.start", "response.done", "response.text.done"]
    assert (events[1]["text"], events[1]["choice"]) == ("red", 0)
    assert (events[1]["probabilities"], events[1]["margin"]) == ([0.75, 0.25], 0.5)
    assert model.requests[0][1].text == "Which?\nA. red\nB. blue"


def test_sampling_is_the_querys_then_the_sessions(begin):
    model = ScriptedModel()
    client = start(begin, model, sampling={"max_tokens": 7, "temperature": 0.5})
    send_frames(client, [0])
    ask(client)
    ask(client, sampling={"max_tokens": 3})
    assert [(query.max_tokens, query.temperature) for _, query in model.requests] == [(7, 0.5), (3, 0.0)]


def test_a_session_without_a_system_prompt_has_that_of_the_settings(begin):
    model = ScriptedModel()
    sessions = begin(model, system_prompt="Be brief.")
    for fields in ({}, {"system_prompt": "Be exact."}):
        client = Client(sessions.open(config(**fields)))
        send_frames(client, [0])
        ask(client)
    assert [prefix.system_prompt for prefix, _ in model.requests] == ["Be brief.", "Be exact."]


def test_queries_are_answered_in_order_while_frames_go_on(begin):
    model = ScriptedModel()
    model.may_answer.clear()
    client = start(begin, model)
    send_frames(client, [0])
    for name in "abc":
        client.send({"type": "video.query", "text": name, "query_id": name})
    assert send_frames(client, [60, 120], first_s=1)[-1]["status"] == "kept"
    client.send({"type": "video.query", "text": "d", "query_id": "d"})
    model.may_answer.set()
    done = [event for event in client.until("response.done", 4) if event["type"] == "response.done"]
    assert [(each["query_id"], each["text"]) for each in done] == [("a", "0"), ("b", "0"), ("c", "0"), ("d", "0 1 2")]


def test_too_many_waiting_queries_are_refused_and_none_is_dropped(begin):
    model = ScriptedModel()
    model.may_answer.clear()
    client = start(begin, model)
    send_frames(client, [0])
    for _ in range(64):
        client.send({"type": "video.query", "text": "?"})
    with pytest.raises(ProtocolError) as raised:
        client.send({"type": "video.query", "text": "?"})
    assert raised.value.code == "too_many_queries"
    model.may_answer.set()
    client.until("response.done", 64)


def test_a_query_without_a_frame_is_refused(begin):
    client = start(begin)
    error = client.exchange({"type": "video.query", "text": "?", "query_id": "q"}, "error")
    assert (error["code"], error["query"], error["query_id"]) == ("no_frames", 0, "q")
    send_frames(client, [0])
    assert ask(client)["query"] == 1


def test_the_engine_is_lost_while_frames_are_read(begin):
    model = ScriptedModel()
    model.may_read.clear()
    client = start(begin, model)
    send_frames(client, SHADES[:2])
    until(lambda: model.prefilled)
    model.lose()
    assert client.last("session.notice")["code"] == "engine_lost"
    assert client.last("session.notice")["code"] == "engine_back"
    assert [prefix.frames for prefix in model.prefilled] == [2, 2], "the kept frames are read again"
    assert client.exchange({"type": "session.stats"}, "session.stats")["engine_restarts"] == 1


def test_the_engine_is_lost_in_an_answer_which_begins_again(begin):
    model = ScriptedModel()
    model.losses = 2
    client = start(begin, model)
    send_frames(client, [0])
    client.send({"type": "video.query", "text": "?"})
    events = client.until("response.done")
    assert [event["type"] for event in events].count("response.start") == 3
    assert (events[-1]["text"], events[-1]["engine_restarts"]) == ("0", 2)
    assert [event["code"] for event in events if event["type"] == "session.notice"] == ["engine_lost"]
    assert client.last("session.notice")["code"] == "engine_back"


def test_an_engine_that_is_lost_again_and_again_gives_the_query_up(begin):
    model = ScriptedModel()
    model.losses = 9
    client = start(begin, model)
    send_frames(client, [0])
    assert client.exchange({"type": "video.query", "text": "?"}, "error")["code"] == "engine_lost"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (PromptTooLongError("The prompt has 9 tokens."), "prompt_too_long"),
        (InferenceError("No."), "query_failed"),
        (RuntimeError("a defect"), "internal"),
    ],
)
def test_a_query_that_fails_is_reported_and_the_next_is_answered(begin, error, code):
    model = ScriptedModel()
    model.fails_with = error
    client = start(begin, model)
    send_frames(client, [0])
    assert client.exchange({"type": "video.query", "text": "?"}, "error")["code"] == code
    model.fails_with = None
    assert ask(client)["query"] == 1


@pytest.mark.parametrize(
    ("fields", "code", "message"),
    [
        ({"model": "other"}, "other_model", "The model other is not served here; scripted answers."),
        ({"modalities": ("audio",)}, "no_speech", "The model scripted does not speak; answers come as text."),
        (
            {"refresh_at_position": 9, "sampling": {"top_k": 3}},
            "fields_ignored",
            "session.config.refresh_at_position, ",
        ),
    ],
)
def test_a_session_that_is_otherwise_than_asked_for_begins_with_a_notice(begin, fields, code, message):
    client = start(begin, **fields)
    notice = client.last("session.notice")
    assert (notice["code"], message in notice["message"]) == (code, True), notice
    send_frames(client, [0])
    assert ask(client)["text"] == "0"


def test_fields_that_are_ignored_are_named_once(begin):
    client = start(begin, model="scripted", modalities=("text", "audio"), persistent=True)
    for at in range(3):
        client.session.handle(json.dumps(frame(60 * at, time_s=at, speed=3)))
    events = client.until("frame.ack", 3)
    assert [event["message"] for event in events if event["type"] == "session.notice"] == [
        "Unknown fields are ignored: video.frame.speed."
    ]


def test_clients_of_the_newer_protocol_are_told_what_was_consumed(begin):
    client = start(begin, persistent=True, sink_frames=2)
    send_frames(client, [0, 60, 120])
    client.send({"type": "video.query", "text": "?"})
    events = client.until("response.done")
    assert (events[-2]["type"], events[-2]["frames"], events[-2]["last_frame"]) == ("video.frames.consumed", 3, 2)
    assert events[-1]["sink_frames"] == 2


@pytest.mark.parametrize(
    "message", [{"type": "audio.chunk", "data": "AAAA"}, {"type": "video.query", "text": "?", "audio_data": "AAAA"}]
)
def test_audio_is_refused_in_a_sentence(begin, message):
    client = start(begin)
    with pytest.raises(ProtocolError, match="takes no audio") as raised:
        client.send(message)
    assert raised.value.code == "audio_unsupported"
