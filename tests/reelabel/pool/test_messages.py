"""What a decoding process sends is taken only if every value of it is what it must be."""

import json
import os
from dataclasses import fields

import numpy as np
import pytest

from reelabel.decode.canvas import Decoded
from reelabel.errors import (
    DecoderCrashedError,
    FallbackRequired,
    InvalidReplyError,
    NoFramesError,
    VideoMissingError,
    VideoTooLargeError,
    VideoUnreadableError,
)
from reelabel.index import HeaderInfo, VideoIndex
from reelabel.pool.messages import (
    Failed,
    ReadFailedError,
    Reads,
    Ready,
    Started,
    Unavailable,
    describe_failure,
    failure,
)
from reelabel.pool.packing import pack, unpack
from reelabel.records import MAX_TEXT
from reelabel.result import Orientation

INFO = HeaderInfo(container="mp4", codec="h264", width_px=8, height_px=8, hdr="PQ", duration_s=2.0)
TWO = np.arange(2)
COLUMNS = {"pts": TWO, "time_s": TWO.astype(float), "position": TWO, "is_keyframe": TWO > 0}
SHAPE = {"native_width_px": 8, "native_height_px": 8, "orientation": Orientation()}
FRAMES = Decoded(images=np.zeros((2, 8, 8, 3), np.uint8), info=INFO, **COLUMNS, **SHAPE)
INDEX = VideoIndex(
    info=INFO,
    kind="packets",
    lists="frames",
    order=TWO,
    is_shown=TWO >= 0,
    pos=TWO,
    size=TWO,
    total_frames=2,
    **COLUMNS,
)
SOUND = (
    Ready(missing=("landlock",)),
    Unavailable(message="no"),
    Started(),
    Reads(spans=((0, 9), (20, 1))),
    Failed(code="no_frames", message="none"),
    FRAMES,
    INDEX,
)
KINDS = [type(each) for each in SOUND]
NOTHING = object()
JUNK = (NOTHING, {"a": 1}, [[]], ["x", 1], "\ud800" * (MAX_TEXT + 1), -(2**63) - 1, 2**63, float("nan"), float("inf"))


def taken(data, descriptor):
    return unpack(KINDS, data if isinstance(data, bytes) else json.dumps(data).encode(), descriptor, max_bytes=10**6)


@pytest.fixture
def sent():
    """Pack a message; return it as JSON has it, and its memory file."""
    opened = []

    def sent(message):
        data, descriptor = pack(message)
        opened.extend([] if descriptor is None else [descriptor])
        return json.loads(data), descriptor

    yield sent
    for descriptor in opened:
        os.close(descriptor)


def paths_in(values):
    for name, value in values.items():
        yield [name]
        if isinstance(value, dict):
            yield from ([name, *path] for path in paths_in(value))


def put(values, path, value):
    """Change the value at a path, or remove it."""
    for name in path[:-1]:
        values = values[name]
    if value is NOTHING:
        del values[path[-1]]
    else:
        values[path[-1]] = value


def assert_same(got, expected):
    for each in fields(expected):
        np.testing.assert_array_equal(getattr(got, each.name), getattr(expected, each.name), each.name)


@pytest.mark.parametrize("message", SOUND, ids=lambda message: type(message).__name__)
def test_a_sound_message_is_taken(sent, message):
    assert_same(taken(*sent(message)), message)


@pytest.mark.parametrize("message", SOUND, ids=lambda message: type(message).__name__)
def test_a_message_with_any_value_of_another_type_is_refused(sent, message):
    for path in paths_in(sent(message)[0]):
        for junk in JUNK:
            values, descriptor = sent(message)
            put(values, path, junk)
            with pytest.raises(InvalidReplyError):
                taken(values, descriptor)
        values, descriptor = sent(message)
        put(values, [*path[:-1], "colour"], 3)
        with pytest.raises(InvalidReplyError):
            taken(values, descriptor)


@pytest.mark.parametrize(
    ("number", "path", "value"),
    [
        (0, "fields.missing", "landlock"),
        (3, "fields.spans", []),
        (3, "fields.spans", [[0, 0]]),
        (3, "fields.spans", [[0, 9, 9]]),
        (4, "fields.linear_only", 0),
        (5, "fields.native_width_px", True),
        (5, "fields.native_width_px", 0),
        (5, "fields.native_width_px", 2.0),
        (5, "fields.native_width_px", 2**31),
        (5, "fields.frames_decoded", 2**31),
        (5, "fields.orientation", [0, False, False, 0]),
        (5, "fields.orientation", [False, False, False, 45]),
        (5, "fields.orientation", [False, False, False, False]),
        (5, "fields.note", "x" * (MAX_TEXT + 1)),
        (5, "fields.info.fps", -0.1),
        (5, "fields.info.fps", True),
        (5, "fields.info.fps", "1"),
        (5, "fields.info.hdr", "SDR"),
        (5, "fields.info.time_base", "1/0"),
        (5, "fields.info.time_base", "1/1\n"),
        (5, "fields.info.crop", [0, 0, 0, -1]),
        (5, "arrays", {}),
        (6, "fields.kind", "linear"),
        (6, "fields.keyframes", -1),
        (6, "fields.total_frames", 2**31),
        (6, "kind", "Decoded"),
        (6, "kind", ["VideoIndex"]),
    ],
)
def test_a_message_with_a_value_that_cannot_be_is_refused(sent, number, path, value):
    values, descriptor = sent(SOUND[number])
    put(values, path.split("."), value)

    with pytest.raises(InvalidReplyError):
        taken(values, descriptor)


def test_only_messages_with_arrays_come_with_a_memory_file(sent):
    values, descriptor = sent(FRAMES)

    for message, file in [(values, None), (sent(Started())[0], descriptor)]:
        with pytest.raises(InvalidReplyError, match="memory file"):
            taken(message, file)


@pytest.mark.parametrize("data", [b"", b"\xff", b"[]", b"3", b"{}", b"[" * 10**6, b'{"kind":"Started"', b"1" * 10**6])
def test_an_invalid_message_is_refused(data):
    with pytest.raises(InvalidReplyError):
        taken(data, None)


def test_text_cannot_control_a_terminal(sent):
    values, _ = sent(Failed(code="no_frames", message=""))
    values["fields"]["message"] = "\x1b[2J\0\ud800red"

    assert taken(values, None).message == "?[2J??red"


@pytest.mark.parametrize("is_wrong", [False, True])
@pytest.mark.parametrize("linear_only", [False, True])
def test_that_another_way_is_needed_crosses_the_process_boundary_with_why_and_what_it_cost(is_wrong, linear_only):
    sent = FallbackRequired("no index", index_is_wrong=is_wrong, linear_only=linear_only)

    got = failure(describe_failure(sent, frames_decoded=7), bytes_fetched=9)

    assert (type(got), str(got), got.index_is_wrong, got.linear_only) == (
        FallbackRequired,
        "no index",
        is_wrong,
        linear_only,
    )
    assert (got.frames_decoded, got.bytes_fetched) == (7, 9)


@pytest.mark.parametrize(
    ("raised", "kind", "message"),
    [
        (NoFramesError("No frame."), NoFramesError, "^No frame\\.$"),
        (VideoTooLargeError("Too large."), VideoTooLargeError, "^Too large\\.$"),
        (MemoryError(), DecoderCrashedError, r"more memory than extract\.memory_mib"),
        (ZeroDivisionError("odd"), VideoUnreadableError, "cannot be decoded"),
        (VideoMissingError("Gone."), VideoUnreadableError, "Gone"),  # which a decoding process cannot know
    ],
)
def test_an_error_crosses_the_process_boundary_as_one_of_the_video(raised, kind, message):
    with pytest.raises(kind, match=message):
        raise failure(describe_failure(raised, frames_decoded=0), bytes_fetched=0)


@pytest.mark.parametrize(
    "failed", [describe_failure(ReadFailedError(), frames_decoded=0), Failed(code="x", message="")]
)
def test_an_error_that_a_process_cannot_know_of_is_an_invalid_reply(failed):
    with pytest.raises(InvalidReplyError, match=f"the error {failed.code}"):
        raise failure(failed, bytes_fetched=0)
