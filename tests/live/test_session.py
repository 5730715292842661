"""Sessions, with a scripted model: acknowledgements, what queries see, backpressure, losses."""

import asyncio
import io
import json
import threading
import time
import tracemalloc

import pytest
from PIL import Image

from reelabel.errors import DecodersLostError
from reelabel_engine.errors import InferenceError, PromptTooLongError
from tasks.live.frame_window import window_rule
from tasks.live.inbox import Frame, Inbox
from tasks.live.media import FrameReader
from tasks.live.messages import ProtocolError, SessionConfig, VideoFrame
from tests.live.client import Client, ask, config, frame, picture, send_frames, start
from tests.live.scripted_model import ScriptedModel
from tests.wait import until

pytestmark = pytest.mark.xdist_group("live_sessions")


SHADES = [0, 60, 120, 180, 240] * 20


def test_each_frame_is_acknowledged_once_and_in_order(begin):
    client = start(begin)
    acks = send_frames(client, [0, 4, 60, 60, 120])
    assert [ack["status"] for ack in acks] == ["kept", "similar", "kept", "similar", "kept"]
    assert [ack["frame"] for ack in acks] == [0, 1, 2, 3, 4]
    assert [ack["accepted"] for ack in acks] == [True, False, True, False, True]
    assert acks[1]["similarity"] == pytest.approx(1 - 4 / 255, abs=0.01)
    assert acks[-1]["buffered_frames"] == 3


def test_frames_are_compared_with_the_last_kept_one_so_that_a_slow_change_is_seen(begin):
    client = start(begin)
    assert [ack["status"] for ack in send_frames(client, [0, 8, 16, 24, 32])] == ["kept", "similar"] * 2 + ["kept"]


def test_without_a_filter_similar_frames_are_kept(begin):
    for chosen in ({"enable_frame_filter": False}, {"frame_filter_threshold": 1.0}):  # nothing is more than the same
        client = start(begin, **chosen)
        assert [ack["status"] for ack in send_frames(client, [0, 0, 0])] == ["kept"] * 3


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


def test_many_turns_see_more_each_time(begin):
    client = start(begin)
    for turn in range(5):
        send_frames(client, SHADES[turn : turn + 1], first_s=turn)
        assert ask(client)["text"] == " ".join(map(str, range(turn + 1)))


def test_a_query_with_choices_has_probabilities_and_no_pieces(begin):
    model = ScriptedModel()
    client = start(begin, model)
    send_frames(client, [0])
    client.send({"type": "video.query", "text": "Which?", "choices": ["red", "blue"]})
    events = client.until("response.text.done")
    assert [event["type"] for event in events] == ["response.start", "response.done", "response.text.done"]
    assert (events[1]["text"], events[1]["choice"]) == ("red", 0)
    assert (events[1]["probabilities"], events[1]["margin"]) == ([0.75, 0.25], 0.5)
    assert model.asked[0][1].text == "Which?\nA. red\nB. blue"


def test_sampling_is_the_querys_then_the_sessions(begin):
    model = ScriptedModel()
    client = start(begin, model, sampling={"max_tokens": 7, "temperature": 0.5})
    send_frames(client, [0])
    ask(client)
    ask(client, sampling={"max_tokens": 3})
    assert [(query.max_tokens, query.temperature) for _, query in model.asked] == [(7, 0.5), (3, 0.0)]


def test_times_are_the_clients_if_it_gives_some(begin):
    client = start(begin)
    assert client.exchange(frame(0, pts_ms=1_700_000_000_000), "frame.ack")["time_s"] == 0
    ack = client.exchange(frame(60, pts_ms=1_700_000_000_500, frame_id="b", capture_ts_ms=7), "video.frame.ack")
    assert (ack["time_s"], ack["frame_id"], ack["pts_ms"], ack["capture_ts_ms"]) == (0.5, "b", 1_700_000_000_500, 7)


def test_other_frames_have_the_time_of_their_arrival(begin):
    client = start(begin)
    assert client.exchange(frame(0), "frame.ack")["time_s"] == 0
    time.sleep(0.05)
    assert client.exchange(frame(60), "frame.ack")["time_s"] > 0.04


def test_a_frame_from_before_the_last_kept_one_comes_too_late(begin):
    client = start(begin)
    send_frames(client, [0, 60], first_s=5)
    late = client.exchange(frame(120, time_s=5.5), "frame.ack")
    assert (late["status"], late["reason"], late["accepted"]) == ("evicted", "late", False)
    assert ask(client)["text"] == "0 1"


def test_frames_of_one_millisecond_are_distinguished_by_their_times(begin):
    """Else a question asked between two of them could not be asked again about the one that it saw."""
    client = start(begin)
    times_s = (5.0, 5.0, 5.0004, 5.002, 5.0, 5.5)
    acks = [client.exchange(frame(60 * (at % 4), time_s=time_s), "frame.ack") for at, time_s in enumerate(times_s)]

    assert [ack["status"] for ack in acks] == ["kept"] * 4 + ["evicted", "kept"]
    assert [round(ack["time_s"] * 1000) for ack in acks if ack["accepted"]] == [0, 1, 2, 3, 500]


def test_binary_messages_are_frames_announced_or_not(begin):
    client = start(begin)
    client.session.receive_data(picture(0))
    assert client.last("frame.ack")["status"] == "kept"
    client.send({"type": "video.frame", "frame_id": "b", "time_s": 3.0})
    client.session.receive_data(picture(60))
    assert client.last("video.frame.ack")["frame_id"] == "b"


def test_a_frame_that_was_announced_and_did_not_follow_is_reported(begin):
    client = start(begin)
    client.send({"type": "video.frame", "frame_id": "a"})
    client.send(frame(0))
    events = client.until("frame.ack")
    assert (events[0]["code"], events[0]["frame_id"]) == ("unexpected_message", "a")
    client.send({"type": "video.frame", "frame_id": "c"})
    client.send({"type": "session.stats"})  # says nothing about the frame
    client.session.receive_data(picture(60))
    assert client.last("video.frame.ack")["frame_id"] == "c"


def test_what_a_lost_connection_announced_is_not_awaited_from_the_next(begin):
    client = start(begin)
    client.session.connect()
    client.send({"type": "video.frame", "frame_id": "a"})
    connection = client.session.connect()
    client.session.receive_data(picture(0))
    assert client.last("frame.ack").get("frame_id") is None
    client.session.disconnect(connection)


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "BMP", "GIF"])
def test_other_kinds_of_pictures_are_frames(begin, kind):
    client = start(begin)
    client.session.receive_data(picture(0, kind=kind))
    assert client.last("frame.ack")["status"] == "kept"


def test_frames_may_change_their_size(begin):
    client = start(begin)
    for shade, size in ((0, (56, 56)), (60, (84, 56)), (120, (84, 56)), (180, (56, 112))):
        client.session.receive_data(picture(shade, size=size))
        assert client.last("frame.ack")["status"] == "kept"
    assert ask(client)["frames_used"] == 4


def gif():
    file = io.BytesIO()
    images = [Image.new("RGB", (56, 56), (shade, 0, 0)) for shade in (0, 99, 200)]
    images[0].save(file, "GIF", save_all=True, append_images=images[1:])
    return file.getvalue()


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "frame_unreadable"),
        (b"hello", "frame_unreadable"),
        (b"#EXTM3U\n/etc/passwd", "frame_unreadable"),
        (b"\0\0\0\x20ftypisom", "frame_unreadable"),
        (b"RIFF\0\0\0\0AVI ", "frame_unreadable"),
        (picture(0, size=(640, 480))[:-40], "frame_unreadable"),
        (picture(0, kind="PNG")[:60], "frame_unreadable"),
        (b"\xff\xd8\xff" + bytes(range(256)) + b"\xff\xd9", "frame_unreadable"),
        (gif(), "frame_unreadable"),
        (picture(0, size=(5000, 4000)), "frame_too_large"),
        (b"\xff\xd8\xff" + b"x" * 8 * 1024**2, "frame_too_large"),
    ],
)
def test_a_frame_that_cannot_be_read_is_named_and_the_session_goes_on(begin, data, code):
    client = start(begin)
    send_frames(client, [0])
    client.session.receive_data(data)
    error = client.last("error")
    assert (error["code"], error["frame"], error["is_fatal"]) == (code, 1, False)
    assert "/" not in error["message"], "says nothing of this machine"
    assert client.exchange(frame(60), "frame.ack")["frame"] == 2
    assert client.exchange({"type": "session.stats"}, "session.stats")["refused"] == 1


def test_a_frame_whose_data_cannot_be_decoded_is_named(begin):
    client = start(begin)
    client.session.handle('{"type": "video.frame", "frame_id": "a", "data": "no base64!"}')
    error = client.last("error")
    assert (error["code"], error["frame_id"]) == ("invalid_message", "a")


def test_no_frame_is_dropped_while_the_model_is_behind_and_a_query_sees_all(begin):
    model = ScriptedModel()
    model.may_read.clear()
    client = start(begin, model)
    for at in range(12):
        client.send(frame(SHADES[at], time_s=at))
    acks = [event for event in client.until("frame.ack", 12) if event["type"] == "frame.ack"]
    assert [(ack["frame"], ack["status"]) for ack in acks] == [(at, "kept") for at in range(12)]
    assert ask(client)["text"] == " ".join(map(str, range(12)))


def test_a_session_is_full_while_32_mib_of_frames_wait():
    data, announced = bytes(8 * 1024**2), VideoFrame(type="video.frame")
    frames = [Frame(number=n, data=data, announced=announced, arrived_s=0.0, received_ms=0.0) for n in range(5)]

    async def fill_and_empty():
        inbox = Inbox()
        for each in frames:
            await inbox.wait_for_room()
            inbox.put(each)
        waiting = asyncio.ensure_future(inbox.wait_for_room())
        await asyncio.sleep(0)
        assert not waiting.done()
        assert [await inbox.get() for _ in frames] == frames
        await waiting

    asyncio.run(fill_and_empty())


def test_a_session_is_full_of_frames_without_content_as_well():
    async def fill():
        inbox = Inbox()
        announced = VideoFrame(type="video.frame")
        for number in range(40_000):
            inbox.put(Frame(number=number, data=b"", announced=announced, arrived_s=0.0, received_ms=0.0))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(inbox.wait_for_room(), 0.01)

    asyncio.run(fill())


def test_frames_that_wait_hold_no_more_than_their_pictures(begin, monkeypatch):
    may_decode, read = threading.Event(), FrameReader.read
    monkeypatch.setattr(FrameReader, "read", lambda reader, data: may_decode.wait() and read(reader, data))
    client = start(begin)
    message = json.dumps(frame(0, ignored="x" * 2**20))
    tracemalloc.start()
    try:
        for _ in range(16):
            client.session.handle(message)
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        may_decode.set()
    assert held_bytes < 2**21


def test_a_query_does_not_wait_for_the_model_to_read_and_sees_the_frame_before_it(begin):
    model = ScriptedModel()
    model.may_read.clear()
    client = start(begin, model)
    send_frames(client, SHADES[:4])
    client.send(frame(SHADES[4], time_s=4))
    assert ask(client)["text"] == "0 1 2 3 4"


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
    with pytest.raises(ProtocolError) as refused:
        client.send({"type": "video.query", "text": "?"})
    assert refused.value.code == "too_many_queries"
    model.may_answer.set()
    client.until("response.done", 64)


def test_a_query_without_a_frame_is_refused(begin):
    client = start(begin)
    error = client.exchange({"type": "video.query", "text": "?", "query_id": "q"}, "error")
    assert (error["code"], error["query"], error["query_id"]) == ("no_frames", 0, "q")
    send_frames(client, [0])
    assert ask(client)["query"] == 1


def test_the_window_is_evicted_in_halves_and_the_sink_stays(begin):
    model = ScriptedModel()
    client = start(begin, model, window=4, sink=2, enable_frame_filter=False)
    acks = send_frames(client, SHADES[:14])
    assert {ack["frame"]: ack["evicted"] for ack in acks if ack["evicted"]} == {9: 4, 13: 4}
    done = ask(client)
    assert done["text"] == "0 1 10 11 12 13"
    assert (done["sink_frames"], done["first_frame_s"], done["evicted"]) == (2, 10, 8)
    assert 6 in {prefix.items[1].times_s[0] for prefix in model.prefilled if len(prefix.items) > 1}
    assert client.exchange({"type": "session.stats"}, "session.stats")["left_window"] == 8


def test_only_for_audio_a_question_sees_no_frame_after_the_sink(begin):
    client = start(begin, window=8, sink=4)
    send_frames(client, SHADES[:4])
    done = ask(client)
    assert (done["sink_frames"], done["first_frame_s"], done["last_frame_s"]) == (4, 2, 3)


@pytest.mark.parametrize(
    ("fields", "sink", "size"),
    [
        ({}, 4, 23),
        ({"sink": 0}, 0, 25),
        ({"max_frames": 8}, 2, 3),
        ({"max_frames": 2}, 0, 2),
        ({"window": 10}, 4, 10),
        ({"window_s": 5.0}, 4, 5),
    ],
)
def test_the_first_frames_stay_by_default_and_at_most_fifty_frames_are_seen(fields, sink, size):
    rule = window_rule(SessionConfig(type="session.config", **fields))
    assert (rule.sink, rule.size) == (sink, size)


def test_at_most_max_frames_are_seen_as_published(begin):
    client = start(begin, max_frames=8, enable_frame_filter=False)
    for count in range(1, 30):
        send_frames(client, SHADES[count : count + 1], first_s=count)
        assert min(count, 4) <= ask(client)["frames_used"] <= 8


def test_of_the_window_num_frames_are_seen_evenly_spread_and_only_what_is_seen_is_read_ahead(begin):
    model = ScriptedModel()
    client = start(begin, model, num_frames=3, sink=2, enable_frame_filter=False)
    send_frames(client, SHADES[:4])
    assert ask(client)["text"] == "0 1 2 3"
    until(lambda: model.prefilled[-1].frames == 4)
    send_frames(client, SHADES[:7], first_s=4)
    done = ask(client)
    assert (done["text"], done["frames_used"], done["sink_frames"]) == ("0 1 2 6 10", 5, 2)
    assert (done["first_frame_s"], done["last_frame_s"], done["last_frame"]) == (2, 10, 10)
    assert {prefix.frames for prefix in model.prefilled} <= {2, 4}


def test_the_frames_that_a_query_saw_are_recorded_by_their_numbers(begin):
    def numbers(shades, **config):
        records = {}
        client = Client(begin(None, None, 4, records).open(SessionConfig(type="session.config", **config)))
        send_frames(client, shades)
        ask(client)
        [row] = records[client.session.session_id].rows
        return list(row["frames"])

    assert numbers([0, 0, 60, 60, 120]) == [0, 1, 2], "of the kept frames"
    every = {"enable_frame_filter": False}
    assert numbers(SHADES[:14], window=4, sink=2, **every) == [0, 1, 10, 11, 12, 13]
    assert numbers(SHADES[:11], num_frames=3, sink=2, **every) == [0, 1, 2, 6, 10]


def test_a_frame_that_is_shown_twice_among_others_is_recorded_twice(begin):
    records = {}
    client = Client(begin(None, None, 4, records).open(SessionConfig(type="session.config")))
    for shade, size in ((0, (56, 56)), (60, (84, 56)), (120, (84, 56)), (180, (56, 56))):
        client.session.receive_data(picture(shade, size=size))
        client.last("frame.ack")
    ask(client)
    assert records[client.session.session_id].rows[0]["frames"] == (0, 0, 1, 2, 3)


def test_a_window_in_seconds(begin):
    client = start(begin, window_s=3, enable_frame_filter=False)
    send_frames(client, SHADES[:20])
    assert 16 <= 19 - ask(client)["first_frame_s"] + 13 <= 19  # the last 3 to 6 seconds


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


def test_frames_that_do_not_fit_into_the_model_are_told_once(begin):
    model = ScriptedModel()
    model.too_long = PromptTooLongError("The prompt has 9 tokens.")
    client = start(begin, model, enable_frame_filter=False)
    events = []
    for at in range(10):
        client.send(frame(0, time_s=at))
        events += client.until("frame.ack")
    client.send({"type": "video.done"})
    errors = [event for event in (*events, *client.until("session.closed")) if event["type"] == "error"]
    assert [error["code"] for error in errors] == ["prompt_too_long"]
    assert errors[0]["message"].endswith("Configure a smaller window.")


def test_a_frame_without_a_decoder_is_reported(begin, monkeypatch):
    def lose(_reader, _data):
        raise DecodersLostError("Decoding processes keep being killed.")

    client = start(begin)
    with monkeypatch.context() as patched:
        patched.setattr(FrameReader, "read", lose)
        error = client.exchange(frame(0, frame_id="a"), "error")
    assert (error["code"], error["frame"], error["frame_id"]) == ("unavailable", 0, "a")
    assert client.exchange(frame(0), "frame.ack")["status"] == "kept"


def test_a_window_that_is_too_large_is_refused(begin):
    with pytest.raises(ProtocolError) as refused:
        begin().open(config(window=5000))
    assert (refused.value.code, refused.value.is_fatal) == ("limit_reached", True)


@pytest.mark.parametrize(
    ("fields", "code", "says"),
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
def test_a_session_that_is_otherwise_than_asked_for_begins_with_a_notice(begin, fields, code, says):
    client = start(begin, **fields)
    notice = client.last("session.notice")
    assert (notice["code"], says in notice["message"]) == (code, True), notice
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


def test_a_client_that_sends_all_at_once_and_waits_for_nothing_is_answered_about_all_its_frames(begin):
    """As clients of the published protocol do."""
    client = start(begin, max_frames=50)
    for at in range(20):
        client.session.handle(json.dumps({"type": "video.frame", "data": frame(SHADES[at])["data"]}))
    client.session.handle('{"type": "video.query", "text": "Describe what you see."}')
    client.session.handle('{"type": "video.done"}')
    events = client.until("session.closed")
    [done] = [event for event in events if event["type"] == "response.done"]
    assert (done["frames_used"], len(done["text"].split()), done["last_frame"]) == (20, 20, 19)
    assert [event["type"] for event in events[-4:]] == [
        "response.done",
        "response.text.done",
        "session.done",
        "session.closed",
    ]


def test_clients_of_the_newer_protocol_are_told_what_was_consumed(begin):
    client = start(begin, persistent=True, sink_frames=2)
    send_frames(client, [0, 60, 120])
    client.send({"type": "video.query", "text": "?"})
    events = client.until("response.done")
    assert (events[-2]["type"], events[-2]["frames"], events[-2]["last_frame"]) == ("video.frames.consumed", 3, 2)
    assert events[-1]["sink_frames"] == 2


def test_a_question_is_timed_by_the_clock_of_the_frames(begin):
    """However fast a client sends a recording."""
    records = {}
    client = Client(begin(None, None, 4, records).open(config()))
    send_frames(client, [0, 60, 60], first_s=1000)  # the last one is similar
    client.send(frame(60, time_s=1600))
    client.last("frame.ack")
    ask(client)
    [row] = records[client.session.session_id].rows
    assert (row["last_frame_s"], round(row["asked_s"])) == (1, 600)


@pytest.mark.parametrize(
    "message", [{"type": "audio.chunk", "data": "AAAA"}, {"type": "video.query", "text": "?", "audio_data": "AAAA"}]
)
def test_audio_is_refused_in_a_sentence(begin, message):
    client = start(begin)
    with pytest.raises(ProtocolError, match="takes no audio") as refused:
        client.send(message)
    assert refused.value.code == "audio_unsupported"
