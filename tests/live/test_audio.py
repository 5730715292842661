"""Audio in sessions, with a scripted model: what is taken and refused, where it is placed, what leaves the window."""

import base64
import json
from dataclasses import replace

import numpy as np
import pytest

from infra.settings import LiveSettings
from reelabel_engine.live_items import AUDIO_HZ, SPAN_S, AudioSpan, FramePair
from tasks.live.event_log import EventLog
from tasks.live.events import SpeechDelta
from tasks.live.messages import ProtocolError
from tasks.live.window import AudioSpans, Window, WindowRule
from tests.live.client import SHADES, ask, frame, send_frames, start
from tests.live.scripted_model import INFO, SPOKEN, ScriptedModel
from tests.wait import until

pytestmark = pytest.mark.xdist_group("live_sessions")
HEARS = replace(INFO, takes_audio=True)


def samples(seconds, value=1000):
    return np.full(round(seconds * AUDIO_HZ), value, np.int16)


def chunk(seconds, **fields):
    return {"type": "audio.chunk", "data": base64.b64encode(samples(seconds).tobytes()).decode(), **fields}


@pytest.fixture
def open_with_audio(begin):
    """Return a function that opens a session whose model hears, and the model."""

    def open_with_audio(settings=None, **fields):
        model = ScriptedModel()
        return start(lambda: begin(model, settings, info=HEARS), **fields), model

    return open_with_audio


def shown(model):
    """Return what the last question saw: the times of frames, and those of audio with a mark."""
    prefix, _ = model.requests[-1]
    return [("audio" if isinstance(item, AudioSpan) else "frames", *item.times_s) for item in prefix.items]


def send_stream(client, seconds, *, first_s=0):
    """Send a frame each second, and its audio in tenths after it."""
    for at in range(first_s, first_s + seconds):
        send_frames(client, SHADES[at : at + 1], first_s=at)
        for tenth in range(10):
            client.send(chunk(0.1, time_s=at + tenth / 10))


def test_audio_follows_the_frames_of_the_same_two_seconds(open_with_audio):
    client, model = open_with_audio()
    send_stream(client, 5)
    done = ask(client)
    assert shown(model) == [
        ("frames", 0, 1),
        ("audio", 0, 2),
        ("frames", 2, 3),
        ("audio", 2, 4),
        ("frames", 4, 4),
        ("audio", 4, 5),
    ]
    assert model.requests[-1][0].has_audio
    assert (done["audio_s"], done["last_audio_s"], done["frames_used"], done["last_frame_s"]) == (5, 5, 5, 4)
    assert client.exchange({"type": "session.stats"}, "session.stats")["audio_s"] == pytest.approx(5)
    until(lambda: any(isinstance(item, AudioSpan) for prefix in model.prefilled for item in prefix.items))


def test_of_fewer_frames_all_of_the_audio_is_heard(open_with_audio):
    client, model = open_with_audio(num_frames=4)
    send_stream(client, 7)
    assert ask(client)["audio_s"] == 7
    assert shown(model) == [
        ("frames", 0, 2),
        ("audio", 0, 2),
        ("audio", 2, 4),
        ("frames", 4, 6),
        ("audio", 4, 6),
        ("audio", 6, 7),
    ]


def test_frames_without_audio_are_asked_as_before(open_with_audio):
    client, model = open_with_audio()
    send_frames(client, SHADES[:3])
    done = ask(client)
    assert not model.requests[-1][0].has_audio
    assert (done["audio_s"], done["last_audio_s"]) == (0, None)


def test_binary_audio_is_announced(open_with_audio):
    client, model = open_with_audio()
    send_frames(client, [0])
    client.send({"type": "audio.chunk", "time_s": 1.0})
    client.session.receive_data(samples(0.5).tobytes())
    client.send({"type": "audio.chunk", "time_s": 1.5})
    client.send(frame(60, time_s=2))
    assert (
        client.last("error")["message"] == "audio.chunk without data announces a binary message, which did not follow."
    )
    assert ask(client)["audio_s"] == 0.5
    assert ("audio", 1, 1.5) in shown(model)


def test_audio_with_a_question_comes_before_it(open_with_audio):
    client, model = open_with_audio()
    send_frames(client, [0])
    done = ask(client, audio_data=chunk(0.25)["data"])
    assert done["audio_s"] == 0.25
    assert [kind for kind, *_ in shown(model)] == ["frames", "audio"]


def test_audio_without_times_ends_as_it_arrives_and_goes_on(open_with_audio):
    client, model = open_with_audio()
    for _ in range(5):
        client.send(chunk(0.5))  # all at once: the samples say how long it is
    client.session.receive_data(base64.b64decode(frame(0)["data"]))
    client.last("frame.ack")
    ask(client)
    assert [each for each in shown(model) if each[0] == "audio"] == [("audio", 0, 2), ("audio", 2, 2.5)]


@pytest.mark.parametrize("first_s", [0, 1_700_000_000])
def test_frames_with_times_follow_audio_without(open_with_audio, first_s):
    client, _ = open_with_audio()
    client.send(chunk(0.5))
    acks = send_frames(client, [0, 60, 120], first_s=first_s)
    assert [ack["status"] for ack in acks] == ["kept"] * 3
    assert 0 < acks[0]["time_s"] < 60
    assert acks[2]["time_s"] - acks[0]["time_s"] == pytest.approx(2)
    client.send(chunk(0.5))
    assert ask(client)["audio_s"] == 1.0


def test_the_audio_of_a_question_that_is_sent_again_is_taken_once(open_with_audio):
    client, _ = open_with_audio()
    send_frames(client, [0])
    again = {"query_id": "a", "again": True, "audio_data": chunk(0.25)["data"]}
    assert ask(client, **again)["audio_s"] == 0.25
    client.send({"type": "video.query", "text": "What is there?", **again})
    assert ask(client)["audio_s"] == 0.25


def test_audio_from_before_the_first_frame_is_not_heard_but_counts_for_the_order(open_with_audio):
    client, model = open_with_audio()
    send_frames(client, [0], first_s=10)
    client.send(chunk(2.0, time_s=9.0))
    client.send(chunk(1.0, time_s=10.25))
    assert "begins at 0.2 seconds, before the end of the last at 1.0" in client.last("error")["message"]
    assert ask(client)["audio_s"] == 1
    assert ("audio", 0, 1) in shown(model)


def test_audio_can_be_left_out(open_with_audio):
    client, model = open_with_audio(use_audio_in_video=False)
    send_stream(client, 3)
    assert ask(client)["audio_s"] == 0
    assert [kind for kind, *_ in shown(model)] == ["frames", "frames"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\0" * 3201, "3,201 bytes, which are no whole samples; send 16-bit little-endian PCM of one channel at 16 k"),
        (b"", "0 bytes"),
        (b"RIFF" + b"\0" * 40, r"is a file \(WAV\); send its samples alone"),
        (b"OggS" + b"\0" * 40, r"is a file \(Ogg\)"),
        (b"\0" * 2 * 16_000 * 31, "31.0 seconds; a chunk has at most 30"),
    ],
)
def test_invalid_audio_is_refused_in_a_sentence_and_the_session_goes_on(open_with_audio, data, message):
    client, _ = open_with_audio()
    client.send({"type": "audio.chunk"})
    with pytest.raises(ProtocolError, match=message) as raised:
        client.session.receive_data(data)
    assert (raised.value.code, raised.value.is_fatal) == ("audio_refused", False)
    send_frames(client, [0])
    assert ask(client)["audio_s"] == 0


@pytest.mark.parametrize(
    ("chunks", "message"),
    [
        ([(1.0, 0.0), (1.0, 0.25)], "begins at 0.2 seconds, before the end of the last at 1.0; send it in order"),
        ([(30.0, None)] * 3, "more than 60 seconds ahead of its arrival; send 16-bit"),  # as at another rate
        ([(1.0, 30.0), (1.0, 0.0)], "before the end of the last"),
    ],
)
def test_audio_at_the_wrong_time_is_refused(open_with_audio, chunks, message):
    client, _ = open_with_audio()
    send_frames(client, [0])
    for seconds, time_s in chunks:
        client.send(chunk(seconds, time_s=time_s))
    error = client.last("error")
    assert error["code"] == "audio_refused"
    assert message in error["message"]


def test_audio_long_after_its_frames_is_refused(open_with_audio):
    client, _ = open_with_audio()
    send_frames(client, [0, 60])
    send_frames(client, [120], first_s=100)
    client.send(chunk(1.0, time_s=50.0))
    assert "is too late, since frames up to 100.0 seconds were taken" in client.last("error")["message"]


def test_audio_alone_cannot_fill_the_memory(open_with_audio):
    client, _ = open_with_audio(LiveSettings(max_window_frames=4), window_s=1e6)
    for at in range(6):
        client.send(chunk(2.0, time_s=2.0 * at))
    assert client.last("error")["message"].startswith("A query would see more than 4 frames and spans of audio")
    assert client.last("session.closed")["reason"] == "limit"


@pytest.mark.parametrize("rule", [{"window": 8}, {"window_s": 16}])
def test_of_a_scene_that_does_not_change_a_frame_stays_while_audio_goes_on(open_with_audio, rule):
    client, model = open_with_audio(**rule)
    for at in range(80):
        acks = send_frames(client, [60 if at else 0], first_s=at)  # the first pair leaves the window
        client.send(chunk(1.0, time_s=at))
        if at % 7 == 0:
            assert ask(client)["frames_used"] >= 1
    assert acks[-1]["status"] in {"kept", "similar"}
    stats = client.exchange({"type": "session.stats"}, "session.stats")
    assert stats["similar"] > 40
    assert len(model.requests[-1][0].items) <= 2 * 8 + 2


def test_frames_that_audio_has_pushed_out_are_not_seen(open_with_audio):
    for sink in (0, 2):
        client, _ = open_with_audio(window=4, sink=sink)
        send_frames(client, SHADES[:4])
        for at in range(4, 40, 2):
            client.send(chunk(2.0, time_s=at))
        if not sink:
            assert client.exchange({"type": "video.query", "text": "?"}, "error")["code"] == "no_frames"
            continue
        done = ask(client)
        assert (done["frames_used"], done["sink_frames"], done["first_frame_s"]) == (2, 2, None)
        assert (done["last_frame_s"], done["last_frame"]) == (1.0, 1)


def test_spans_are_two_seconds_long_and_end_early_only_for_a_gap_or_a_frame():
    spans = AudioSpans()
    assert spans.add(samples(1.5), 0.0) == ()
    [first] = spans.add(samples(1.0), 1.7)  # a clock may differ by as much
    assert first.times_s == (0, 2)
    assert spans.open.times_s == (2, 2.5)
    assert spans.cut(3.9) == ()
    [second] = spans.add(samples(0.5), 10.0)
    assert (second.times_s, spans.open.times_s) == ((2, 2.5), (10, 10.5))
    [third] = spans.cut(12.0)
    assert (third.times_s, spans.open) == ((10, 10.5), None)
    assert spans.add(samples(0.5), 10.5) == ()
    assert spans.open.times_s == (10.5, 11.0)
    many = AudioSpans().add(samples(7.0), 3.0)
    assert [span.times_s for span in many] == [(3, 5), (5, 7), (7, 9)]


def test_a_short_span_is_padded_to_what_an_encoder_takes():
    spans = AudioSpans()
    spans.add(samples(0.01), 0.0)
    assert len(spans.open.samples) == AUDIO_HZ // 10
    assert not spans.open.samples[-1]


def test_the_same_audio_at_another_time_is_other_audio():
    one = AudioSpan(samples=samples(1), time_s=1.0)
    assert one.hash == AudioSpan(samples=samples(1), time_s=1.0).hash
    assert one.hash != AudioSpan(samples=samples(1), time_s=1.5).hash
    assert one.hash != AudioSpan(samples=samples(1, value=7), time_s=1.0).hash


@pytest.mark.parametrize(("unit", "size"), [("frames", 6), ("seconds", 8.0)])
def test_audio_leaves_the_window_with_the_frames_of_its_time(unit, size):
    window = Window(WindowRule(size=size, unit=unit))
    pixels = np.zeros((2, 2, 2, 3), np.uint8)
    for at in range(0, 60, 2):
        window.add(FramePair(images=pixels, times_s=(at, at + 1.0)))
        window.add(AudioSpan(samples=samples(SPAN_S), time_s=at))
        kinds = [isinstance(item, AudioSpan) for item in window.current]
        starts = [item.times_s[0] for item in window.current]
        assert abs(sum(kinds) - len(kinds) / 2) <= 0.5
        assert starts == sorted(starts)
    assert window.evicted > 30


def test_an_answer_in_speech_is_announced_message_by_message_and_kept_for_a_client_that_comes_back(begin):
    speaking = {"modalities": ("text", "audio"), "speech_event": "response.audio"}
    client = start(lambda: begin(info=replace(INFO, produces_speech=True)), **speaking)
    send_frames(client, [0, 60])
    before = client.seq
    done = ask(client)
    sent = [each for each in client.session.events.after(before) if each.data]
    assert [each.data for each in sent] == [SPOKEN]
    assert json.loads(sent[0].text) | {"seq": 0} == {
        "seq": 0,
        "type": "response.audio",
        "query": 0,
        "bytes": len(SPOKEN),
        "delta": None,
        "format": "pcm16",
        "sample_rate": 24_000,
    }
    assert done["speech_s"] == pytest.approx(0.08)
    assert 0 < done["first_token_ms"] <= done["first_speech_ms"] <= done["total_ms"]
    kinds = [event["type"] for event in client.everything()]
    assert kinds.index("response.audio") < kinds.index("response.audio.done") < kinds.index("response.done")
    chosen = ask(client, choices=["red", "blue"])
    assert (chosen["speech_s"], chosen["first_speech_ms"]) == (0, None)


@pytest.mark.parametrize(
    ("newer", "names"),
    [
        ({}, ("response.audio.delta", "response.audio.done")),
        ({"persistent": True}, ("response.output_audio.delta", "response.output_audio.done")),
    ],
)
def test_clients_get_speech_as_their_protocol_has_it(begin, newer, names):
    client = start(lambda: begin(info=replace(INFO, produces_speech=True)), modalities=("audio",), **newer)
    send_frames(client, [0])
    client.send({"type": "video.query", "text": "?"})
    events = [event for event in client.until("response.done") if "audio" in event["type"]]
    assert tuple(event["type"] for event in events) == names
    assert base64.b64decode(events[0]["delta"]) == SPOKEN
    assert not [each for each in client.session.events.after(0) if each.data]


def test_who_does_not_ask_for_speech_gets_none(begin):
    client = start(lambda: begin(info=replace(INFO, produces_speech=True)))
    assert client.everything()[0]["modalities"] == ["text"]
    send_frames(client, [0])
    assert ask(client)["speech_s"] == 0


def test_old_speech_does_not_fill_the_memory():
    events = EventLog()
    for _ in range(100):
        events.send(SpeechDelta(query=0, bytes=1024**2, sample_rate=24_000), bytes(1024**2))
    kept = events.after(0)
    assert 7 <= len(kept) <= 8
    assert kept[-1].seq == 100


def test_a_piece_of_speech_that_is_larger_than_what_is_kept_is_sent():
    events = EventLog()
    for _ in range(2):
        events.send(SpeechDelta(query=0, bytes=9 * 1024**2, sample_rate=24_000), bytes(9 * 1024**2))
        [kept] = events.after(0)
        assert (kept.seq, len(kept.data)) == (events.last_seq, 9 * 1024**2)
