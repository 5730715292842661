"""What a decoding process sends is taken only if every value of it is what it must be."""

import json

import pytest

from reelabel.errors import InvalidReplyError
from reelabel.pool.messages import (
    MAX_TEXT,
    Failed,
    Frames,
    Index,
    Reads,
    Ready,
    Started,
    Unavailable,
    encode_answer,
    parse_answer,
)

CODEC = {"name": "h264", "extradata": "AAAA", "tag": "avc1", "width": 8, "height": 8, "pix_fmt": None}
CODEC |= dict.fromkeys(
    ("bits_per_coded_sample", "color_range", "color_primaries", "color_trc", "colorspace", "field_order"), 0
)
INFO = {"container": "mp4", "codec": "h264", "width_px": 8, "height_px": 8, "hdr": "PQ", "time_base": "1/1000"}
INFO |= {"fps": 0.0, "duration_s": 2, "pixel_aspect": 1.0, "crop": [0, 0, 0, 0], "frames": None}
TABLE = {"keyframes": 2, "codec": CODEC, "info": INFO, "orientation": [False, False, False, 90], "frames": 2}
TABLE |= {"missing_bytes": 0, "brings_parameters": False, "is_order_proven": True}
FRAMES = {"count": 2, "height_px": 8, "width_px": 8, "picks": 2, "keyframes": 2, "has_deviations": False}
FRAMES |= {"keyframes_in_file": 2, "total_frames": 2, "fps": 1.0, "duration_s": 2.0, "native_width_px": 8}
FRAMES |= {"native_height_px": 8, "orientation": [True, False, False, 0], "method": "index", "reason": ""}
FRAMES |= {"decode_ms": 1.0, "frames_decoded": 2, "sampler": "keyframes", "dropped_as_similar": 0}
FRAMES |= {"pixel_aspect": 1.0, "starts_s": None, "first_s": 0, "first_ms": -5, "table": TABLE}
INDEX = {"info": INFO, "source": "packets", "lists": "frames", "rows": 2, "shown": 2, "has_times": True}
INDEX |= {"is_listed": True, "keyframes": 2, "first_s": 0, "last_s": None, "total_frames": 2, "is_whole": True}
INDEX |= {"is_start_known": True, "is_order_proven": False, "doubt": "", "note": ""}
SOUND = {
    Ready: {"missing": ["landlock"]},
    Unavailable: {"message": "no"},
    Started: {},
    Reads: {"spans": [[0, 9], [20, 1]]},
    Failed: {"code": "no_frames", "message": "none"},
    Frames: FRAMES,
    Index: INDEX,
}
NOTHING = object()
JUNK = (NOTHING, {"a": 1}, [[]], ["x", 1], "\ud800" * (MAX_TEXT + 1), -(2**63) - 1, 2**63, float("nan"), float("inf"))


def sent(kind):
    """Return the values of a sound message as JSON has them."""
    return json.loads(encode_answer(kind(**SOUND[kind])))


def places(values):
    for name, value in values.items():
        yield [name]
        if isinstance(value, dict):
            yield from ([name, *place] for place in places(value))


def put(values, place, value):
    """Change the value at a place; leave it out if there is none."""
    for name in place[:-1]:
        values = values[name]
    if value is NOTHING:
        del values[place[-1]]
    else:
        values[place[-1]] = value


@pytest.mark.parametrize("kind", SOUND, ids=lambda kind: kind.__name__)
def test_a_sound_message_is_taken(kind):
    assert parse_answer(encode_answer(kind(**SOUND[kind]))) == kind(**SOUND[kind])


@pytest.mark.parametrize(
    ("kind", "place"),
    [pytest.param(kind, place, id=".".join([kind.__name__, *place])) for kind in SOUND for place in places(sent(kind))],
)
def test_a_message_with_any_value_of_another_type_is_refused(kind, place):
    for junk in JUNK:
        values = sent(kind)
        put(values, place, junk)
        with pytest.raises(InvalidReplyError):
            parse_answer(json.dumps(values).encode())
    values = sent(kind)
    put(values, [*place[:-1], "colour"], 3)
    with pytest.raises(InvalidReplyError):
        parse_answer(json.dumps(values).encode())


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        (Ready, "missing", "landlock"),
        (Reads, "spans", []),
        (Reads, "spans", [[0, 0]]),
        (Reads, "spans", [[0, 9, 9]]),
        (Reads, "is_kept", 1),
        (Frames, "count", True),
        (Frames, "count", 0),
        (Frames, "count", 2.0),
        (Frames, "width_px", 2**31),
        (Frames, "fps", True),
        (Frames, "fps", "1"),
        (Frames, "decode_ms", -1.0),
        (Frames, "method", "guess"),
        (Frames, "orientation", [0, False, False, 0]),
        (Frames, "orientation", [False, False, False, 45]),
        (Frames, "orientation", [False, False, False, False]),
        (Frames, "reason", "x" * (MAX_TEXT + 1)),
        (Frames, "table", TABLE | {"keyframes": 0}),
        (Frames, "table", TABLE | {"codec": CODEC | {"tag": "x" * 17}}),
        (Frames, "table", TABLE | {"codec": CODEC | {"extradata": "\u00e4"}}),
        (Frames, "table", TABLE | {"info": INFO | {"time_base": "1/0"}}),
        (Frames, "table", TABLE | {"info": INFO | {"time_base": "1/1\n"}}),
        (Frames, "table", TABLE | {"info": INFO | {"crop": [0, 0, 0, -1]}}),
        (Index, "info", INFO | {"fps": -0.1}),
        (Index, "info", INFO | {"hdr": "SDR"}),
        (Index, "source", "linear"),
        (Index, "rows", -1),
        (Index, "kind", "frames"),
        (Index, "kind", ["index"]),
    ],
)
def test_a_message_with_a_value_that_cannot_be_is_refused(kind, name, value):
    with pytest.raises(InvalidReplyError):
        parse_answer(json.dumps(sent(kind) | {name: value}).encode())


@pytest.mark.parametrize("data", [b"", b"\xff", b"[]", b"3", b"{}", b"[" * 10**6, b'{"kind":"started"', b"1" * 10**6])
def test_what_is_no_message_is_refused(data):
    with pytest.raises(InvalidReplyError):
        parse_answer(data)


def test_text_cannot_control_a_terminal():
    values = sent(Failed) | {"message": "\x1b[2J\0\ud800red"}

    assert parse_answer(json.dumps(values).encode()).message == "?[2J??red"
