"""Frames of a session: acknowledgements, times, pictures that cannot be read, and frames that wait."""

import asyncio
import io
import json
import threading
import time
import tracemalloc

import pytest
from PIL import Image

from reelabel.errors import DecodersLostError
from reelabel_engine.errors import PromptTooLongError
from tasks.live.inbox import Frame, Inbox
from tasks.live.media import FrameReader
from tasks.live.messages import VideoFrame
from tests.live.client import SHADES, ask, frame, picture, send_frames, start
from tests.live.scripted_model import ScriptedModel

pytestmark = pytest.mark.xdist_group("live_sessions")


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


def test_a_late_frame_that_is_no_picture_is_refused_like_any_other(begin):
    client = start(begin)
    send_frames(client, [0, 60], first_s=5)
    client.send({"type": "video.frame", "time_s": 5.5})
    client.session.receive_data(b"no picture")
    error = client.last("error")
    assert (error["code"], error["frame"]) == ("frame_unreadable", 2)
    assert client.exchange({"type": "session.stats"}, "session.stats")["evicted"] == 0


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
        (picture(0, size=(640, 480), kind="GIF")[:-40], "frame_unreadable"),
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
