"""Which frames of a session a query sees, and which are recorded."""

import json

import pytest

from tasks.live.frame_window import window_rule
from tasks.live.messages import ProtocolError, SessionConfig
from tests.live.client import SHADES, Client, ask, config, frame, picture, send_frames, start
from tests.live.scripted_model import ScriptedModel
from tests.wait import until

pytestmark = pytest.mark.xdist_group("live_sessions")


def test_many_turns_see_more_each_time(begin):
    client = start(begin)
    for turn in range(5):
        send_frames(client, SHADES[turn : turn + 1], first_s=turn)
        assert ask(client)["text"] == " ".join(map(str, range(turn + 1)))


def test_a_query_does_not_wait_for_the_model_to_read_and_sees_the_frame_before_it(begin):
    model = ScriptedModel()
    model.may_read.clear()
    client = start(begin, model)
    send_frames(client, SHADES[:4])
    client.send(frame(SHADES[4], time_s=4))
    assert ask(client)["text"] == "0 1 2 3 4"


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


@pytest.mark.parametrize("most", [1, 2, 3, 4, 5, 8])
def test_at_most_max_frames_are_seen_as_published(begin, most):
    client = start(begin, max_frames=most, sink=4, enable_frame_filter=False)
    for count in range(1, 30):
        send_frames(client, SHADES[count : count + 1], first_s=count)
        done = ask(client)
        assert min(count, (most + 1) // 2) <= done["frames_used"] <= most
        assert done["last_frame_s"] == count - 1


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


def test_a_window_that_is_too_large_is_refused(begin):
    with pytest.raises(ProtocolError) as raised:
        begin().open(config(window=5000))
    assert (raised.value.code, raised.value.is_fatal) == ("limit_reached", True)


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


def test_queries_that_wait_share_the_frames_that_they_see(begin):
    model = ScriptedModel()
    model.may_answer.clear()
    client = start(begin, model, num_frames=4, window=16)
    send_frames(client, SHADES[:9])
    for _ in range(3):
        client.send({"type": "video.query", "text": "?"})
    model.may_answer.set()
    client.until("response.done", 3)

    first, *others = [prefix.items for prefix, _ in model.requests]
    assert len(first) == 2
    assert all(item is known for items in others for item, known in zip(items, first, strict=True))
