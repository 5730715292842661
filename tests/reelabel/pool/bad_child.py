"""A decoding process that a video has taken over; the content of the video says what it does."""

import array
import fcntl
import json
import os
import pickle
import signal
import socket
import struct
import tempfile
import time
from pathlib import Path
from unittest.mock import patch

import numpy as np

from reelabel.decode.canvas import Decoded
from reelabel.errors import FallbackRequired
from reelabel.index import HeaderInfo, VideoIndex
from reelabel.pool import child, packing
from reelabel.pool.messages import Failed, Reads, Started
from reelabel.pool.packing import pack
from reelabel.result import Orientation

PREFIX = b"do "
BY_RANGES_ONLY = 77
honest_call = child.Opened.call


def main(descriptor):
    child.Opened.call = call
    child.main(descriptor)


def call(video, call):
    """List two frames honestly, and do what the video says where they are to be decoded, or its header is read."""
    connection = video._source._connection
    head = b"" if video.descriptor is None else os.pread(video.descriptor, 4096, 0)
    if video._opening.limits.max_frames == BY_RANGES_ONLY:
        BEHAVIOURS["read_outside" if video.size_bytes % 2 else "read_too_often"](connection, video.size_bytes)
    if not head.startswith(PREFIX):
        return honest_call(video, call)
    if call.method == "list_frames" and call.options["in_pieces"] and call.arguments[0] == "container":
        video.left = 1  # that many pieces are decoded honestly
        raise FallbackRequired("in order, please", linear_only=True)
    if call.method.startswith("list_"):
        return index()
    if getattr(video, "left", 0):
        video.left -= 1
        return frames()
    name, *arguments = head.decode().split()[1:]
    BEHAVIOURS[name](connection, *arguments)
    time.sleep(60)
    raise AssertionError


BEHAVIOURS = {}


def behaviour(function):
    BEHAVIOURS[function.__name__] = function
    return function


def frames(count=2, **changed):
    """Return frames that a pool would take."""
    fields = {
        "images": np.zeros((count, 8, 8, 3), np.uint8),
        "pts": np.arange(count),
        "time_s": np.arange(float(count)),
        "position": np.arange(count),
        "is_keyframe": np.ones(count, np.bool_),
        "info": INFO,
        "orientation": Orientation(),
        "native_width_px": 8,
        "native_height_px": 8,
        "frames_decoded": 2,
    }
    return Decoded(**fields | changed)


def changed_answer(*, change=None, seals=packing._SEALS, write=None, shapes=None, **changed):
    """Return frames, of which the message, the file or its seals are changed."""
    with patch.object(packing, "_SEALS", seals):
        data, descriptor = pack(frames())
    if write:
        copy = os.memfd_create("frames", os.MFD_ALLOW_SEALING)
        os.write(copy, write(bytearray(os.pread(descriptor, 1 << 20, 0))))
        fcntl.fcntl(copy, fcntl.F_ADD_SEALS, packing._SEALS)
        descriptor = copy
    message = json.loads(data)
    message["fields"] |= changed
    message["arrays"] |= shapes or {}
    text = json.dumps(message, separators=(",", ":"))
    return (change(text) if change else text).encode(), descriptor


def answer_with(connection, **changed):
    child.send(connection, *changed_answer(**changed))


def put(offset, value):
    """Return a change of eight bytes of the file."""

    def write(data):
        data[offset : offset + 8] = value
        return data

    return write


def changed_index(name=None, value=None):
    """Return an index, with another value of a field, of its `info` or of a column of the memory file."""
    data, descriptor = pack(index())
    answer = json.loads(data)
    listed = answer["fields"]
    if name in COLUMNS:
        column = np.array(json.loads(value), np.uint8 if name.startswith("is_") else None)
        _, descriptor = pack(index(**{name: column}))
    elif name:
        fields = next((each for each in (answer, listed["info"]) if name in each), listed)
        fields[name] = json.loads(value)
    return json.dumps(answer).encode(), descriptor


@behaviour
def index_with(connection, *change):
    child.send(connection, *changed_index(*change))


INFO = HeaderInfo(container="mp4", codec="h264", width_px=8, height_px=8, fps=1.0, duration_s=2.0, frames=2)
COLUMNS = {
    "pts": np.array([0, 1]),
    "pos": np.array([10, 20]),
    "size": np.array([9, 9]),
    "order": np.array([0, 1]),
    "position": np.array([0, 1]),
    "time_s": np.array([0.0, 1.0]),
    "keyframe_s": np.array([0.0, 1.0]),
    "is_keyframe": np.ones(2, np.bool_),
    "is_shown": np.ones(2, np.bool_),
}


def index(**changed):
    """Return an index that a pool would take, but for the columns that are changed."""
    found = VideoIndex(info=INFO, kind="container", lists="keyframes", keyframes=2, total_frames=2, **COLUMNS)
    for name, column in changed.items():
        object.__setattr__(found, name, column)  # unchecked
    return found


IMAGES = 2 * 8 * 8 * 3
TIMES, INDICES, KEY = IMAGES + 16, IMAGES + 32, IMAGES + 48
NAN, MINUS_TWO = struct.pack("d", float("nan")), struct.pack("q", -2)

CHANGES = {
    "another_height": {"shapes": {"images": [2, 9, 8, 3]}},
    "gigantic_shape": {"shapes": {"images": [2**62, 2**31 - 1, 2**31 - 1, 3]}},
    "too_many_dimensions": {"shapes": {"images": [1] * 65}},
    "a_side_beyond_numpy": {"shapes": {"images": [0, 2**63, 8, 3]}},
    "no_frames": {"shapes": {"images": [0, 8, 8, 3]}},
    "negative_shape": {"shapes": {"images": [-2, -8, 8, 3]}},
    "shape_of_text": {"shapes": {"images": ["2", 8, 8, 3]}},
    "other_arrays": {"shapes": {"colours": [0]}},
    "an_angle_of_its_own": {"orientation": (False, False, False, 45)},
    "endless_text": {"note": "x" * 3000},
    "infinite_fps": {"change": lambda text: text.replace('"fps":1.0', '"fps":Infinity')},
    "number_as_text": {"native_width_px": "8"},
    "no_width": {"native_width_px": 0},
    "fewer_than_none_decoded": {"frames_decoded": -1},
    "more_fields": {"picks": []},
    "pixels_in_the_message": {"images": [[0]]},
    "another_kind": {"change": lambda text: text.replace('"Decoded"', '"VideoIndex"')},
    "not_sealed": {"seals": 0},
    "sealed_but_writable": {"seals": fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW},
    "sealed_but_shrinkable": {"seals": fcntl.F_SEAL_SEAL | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW},
    "time_that_is_none": {"write": put(TIMES, NAN)},
    "negative_index": {"write": put(INDICES, MINUS_TWO)},
    "neither_true_nor_false": {"write": put(KEY, b"\7" * 8)},
    "longer_file": {"write": lambda data: data + bytes(8)},
}
for name, change in CHANGES.items():
    BEHAVIOURS[name] = lambda connection, change=change: answer_with(connection, **change)


@behaviour
def control_characters(connection):
    answer_with(connection, note="\x1b[2J\0red")


@behaviour
def hang(*_):
    pass


@behaviour
def burn(_connection, seconds):
    started = time.process_time()
    while time.process_time() - started < float(seconds):
        pass
    raise ValueError("burnt")


@behaviour
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)


@behaviour
def die_once(_connection, marker):
    if Path(marker).exists():
        raise ValueError("alive")
    Path(marker).touch()
    os.kill(os.getpid(), signal.SIGKILL)


@behaviour
def allocate(*_):
    bytearray(4 * 1024**3)


class Bomb:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (self.marker,)


@behaviour
def pickle_bomb(connection, marker):
    child.send(connection, pickle.dumps(Bomb(marker)))


@behaviour
def garbage(connection):
    connection.sendall(os.urandom(4096))


@behaviour
def endless_message(connection):
    connection.sendall(struct.pack("!Q", 2**40))
    while True:
        connection.sendall(bytes(65536))


@behaviour
def drip(connection):
    connection.sendall(struct.pack("!Q", 1000))
    while True:
        connection.sendall(b" ")
        time.sleep(0.05)


@behaviour
def deep_nesting(connection):
    child.send(connection, b"[" * 1_000_000)


@behaviour
def begin_forever(connection):
    while True:
        child.reply(connection, Started())


@behaviour
def error_of_the_store(connection):
    child.reply(connection, Failed(code="store_unavailable", message="The store is down; stop the run."))


@behaviour
def failed_read_that_was_none(connection):
    child.reply(connection, Failed(code="read_failed", message=""))


@behaviour
def reads_of_a_whole_video(connection):
    child.reply(connection, Reads(spans=((0, 1),)))


@behaviour
def another_number_of_frames(connection):
    child.send(connection, *pack(frames(3)))


@behaviour
def larger_frames(connection):
    child.send(connection, *pack(frames(images=np.zeros((2, 16, 16, 3), np.uint8))))


@behaviour
def no_descriptor(connection):
    child.reply(connection, frames())


@behaviour
def descriptor_of_a_pipe(connection):
    child.reply(connection, frames(), os.pipe()[0])


@behaviour
def descriptor_of_a_file(connection):
    data, frames_file = pack(frames())
    with tempfile.TemporaryFile() as file:
        file.write(os.pread(frames_file, 1 << 20, 0))
        file.flush()
        child.send(connection, data, file.fileno())


@behaviour
def file_of_holes(connection):
    data, whole = changed_answer(shapes={"images": [2, 4096, 4096, 3]})
    holes = os.memfd_create("frames", os.MFD_ALLOW_SEALING)
    os.ftruncate(holes, os.fstat(whole).st_size - IMAGES + 2 * 4096 * 4096 * 3)
    fcntl.fcntl(holes, fcntl.F_ADD_SEALS, packing._SEALS)
    child.send(connection, data, holes)


@behaviour
def flood_of_descriptors(connection):
    data, descriptor = pack(frames())
    rights = array.array("i", [descriptor] * 200)
    connection.sendmsg([struct.pack("!Q", len(data))], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    connection.sendall(data)


@behaviour
def descriptors_in_transit(connection):
    data, descriptor = pack(frames())
    child.send(connection, data, descriptor)
    rights = array.array("i", [descriptor] * 200)
    connection.sendmsg([bytes(8)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])


@behaviour
def descriptors_in_the_body(connection):
    data, descriptor = pack(frames())
    connection.sendall(struct.pack("!Q", len(data)))
    for at in range(0, len(data), 16):
        rights = array.array("i", [descriptor] * 10)
        connection.sendmsg([data[at : at + 16]], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])


@behaviour
def one_more_answer(connection):
    answer_with(connection, note="taken over")
    answer_with(connection, note="for the next video")


@behaviour
def read_outside(connection, size_bytes):
    child.reply(connection, Reads(spans=((size_bytes - 1, 2),)))
    time.sleep(60)


@behaviour
def read_too_often(connection, _size_bytes):
    while True:
        child.reply(connection, Reads(spans=((0, 1),) * 600))
        child.receive_bytes(connection, 1200)
