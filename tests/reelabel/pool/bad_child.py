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
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np

from reelabel.errors import FallbackRequired
from reelabel.index import VideoIndex, VideoInfo
from reelabel.pool import child, transfer
from reelabel.pool.messages import Failed, Reads, Started, encode_answer
from reelabel.pool.transfer import pack_index
from reelabel.sampled_frames import Orientation, SampledFrames
from reelabel.segment import WHOLE

PREFIX = b"do "
honest_extract, honest_opened = child.extract, child._opened


def main(descriptor):
    child.extract = extract
    child._extract_in_order = extract_in_order
    child._opened = opened
    child.main(descriptor)


def extract(connection, request, descriptor):
    head = b"" if descriptor is None else os.pread(descriptor, 4096, 0)
    if request.limits.max_frames == BY_RANGES_ONLY:
        BEHAVIOURS["read_outside" if request.size_bytes % 2 else "read_too_often"](connection, request)
    if not head.startswith(PREFIX):
        return honest_extract(connection, request, descriptor)
    if request.fast_only:
        raise FallbackRequired("in order, please")
    name, *arguments = head.decode().split()[1:]
    BEHAVIOURS[name](connection, request, *arguments)
    time.sleep(60)
    raise AssertionError


@contextmanager
def opened(connection, request, descriptor):
    """Open a video honestly, unless it says what its index is."""
    head = b"" if descriptor is None else os.pread(descriptor, 4096, 0)
    if head.startswith(PREFIX):
        name, *arguments = head.decode().split()[1:]
        BEHAVIOURS[name](connection, request, *arguments)
        time.sleep(60)
    with honest_opened(connection, request, descriptor) as video:
        yield video


def extract_in_order(connection, request, descriptor):
    """Answer one request honestly, and the next by what the video says."""
    answer_with(connection, request)
    request = pickle.loads(child.receive(connection)[0])
    child.reply(connection, Started())
    extract(connection, request, descriptor)


BY_RANGES_ONLY = 77
BEHAVIOURS = {}


def behaviour(function):
    BEHAVIOURS[function.__name__] = function
    return function


def frames(**changed):
    """Return frames that a pool would take."""
    fields = {
        "images": np.zeros((2, 8, 8, 3), np.uint8),
        "pts": np.arange(2),
        "time_s": np.arange(2.0),
        "frame_index": np.arange(2),
        "is_keyframe": np.ones(2, np.bool_),
        "picks": np.arange(2),
        "keyframes_in_file": 2,
        "total_frames": 2,
        "fps": 1.0,
        "duration_s": 2.0,
        "native_width_px": 8,
        "native_height_px": 8,
        "orientation": Orientation(),
        "method": "linear",
        "reason": "",
        "decode_ms": 1.0,
        "segment": WHOLE,
    }
    return SampledFrames(**fields | changed)


def changed_answer(request, *, change=None, seals=transfer._SEALS, write=None, **changed):
    """Return an answer with frames, of which the message, the file or its seals are changed."""
    with patch.object(transfer, "_SEALS", seals):
        message, descriptor = transfer.pack_frames(frames(), (), request)
    if write:
        copy = os.memfd_create("frames", os.MFD_ALLOW_SEALING)
        os.write(copy, write(bytearray(os.pread(descriptor, 1 << 20, 0))))
        fcntl.fcntl(copy, fcntl.F_ADD_SEALS, transfer._SEALS)
        descriptor = copy
    text = json.dumps(message.to_dict() | changed, separators=(",", ":"))
    return (change(text) if change else text).encode(), descriptor


def answer_with(connection, request, **changed):
    child.send(connection, *changed_answer(request, **changed))


def put(offset, value):
    """Return a change of eight bytes of the file."""

    def write(data):
        data[offset : offset + 8] = value
        return data

    return write


@behaviour
def index_with(connection, request, name=None, value=None):
    """Send an index, with another value of a field, of its `info` or of a column of the memory file."""
    message, descriptor = pack_index(index(), (), request)
    answer = message.to_dict()
    if name in COLUMNS:
        column = np.array(json.loads(value), np.uint8 if name.startswith("is_") else None)
        _, descriptor = pack_index(index(**{name: column}), (), request)
    elif name in answer["info"]:
        answer["info"][name] = json.loads(value)
    elif name:
        answer[name] = json.loads(value)
    child.send(connection, json.dumps(answer).encode(), descriptor)


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
    info = VideoInfo(container="mp4", codec="h264", width_px=8, height_px=8, fps=1.0, duration_s=2.0, frames=2)
    made = VideoIndex(info=info, kind="container", lists="keyframes", keyframes=2, total_frames=2, **COLUMNS)
    for name, column in changed.items():
        object.__setattr__(made, name, column)  # unchecked
    return made


IMAGES = 2 * 8 * 8 * 3
TIMES, INDICES, KEY, PICKS = IMAGES + 16, IMAGES + 32, IMAGES + 48, IMAGES + 56
NAN, MINUS_TWO, FIVE = struct.pack("d", float("nan")), struct.pack("q", -2), struct.pack("q", 5)

CHANGES = {
    "another_height": {"height_px": 9},
    "gigantic_shape": {"height_px": 2**31 - 1, "width_px": 2**31 - 1, "count": 2**62},
    "no_frames": {"count": 0},
    "another_sampler": {"sampler": "uniform"},
    "another_method": {"method": "guess"},
    "an_angle_of_its_own": {"orientation": (False, False, False, 45)},
    "endless_text": {"reason": "x" * 3000},
    "infinite_fps": {"change": lambda text: text.replace('"fps":1.0', '"fps":Infinity')},
    "number_as_text": {"change": lambda text: text.replace('"count":2', '"count":"2"')},
    "more_fields": {"change": lambda text: text.replace('"count":2', '"count":2,"images":[]')},
    "not_sealed": {"seals": 0},
    "sealed_but_writable": {"seals": fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW},
    "sealed_but_shrinkable": {"seals": fcntl.F_SEAL_SEAL | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW},
    "time_that_is_none": {"write": put(TIMES, NAN)},
    "negative_index": {"write": put(INDICES, MINUS_TWO)},
    "neither_true_nor_false": {"write": put(KEY, b"\7" * 8)},
    "pick_of_no_frame": {"write": put(PICKS, FIVE)},
    "negative_pick": {"write": put(PICKS, MINUS_TWO)},
    "longer_file": {"write": lambda data: data + bytes(8)},
}
for name, change in CHANGES.items():
    BEHAVIOURS[name] = lambda connection, request, change=change: answer_with(connection, request, **change)


@behaviour
def control_characters(connection, request):
    answer_with(connection, request, reason="\x1b[2J\0red")


@behaviour
def hang(*_):
    pass


@behaviour
def burn(_connection, _request, seconds):
    started = time.process_time()
    while time.process_time() - started < float(seconds):
        pass
    raise ValueError("burnt")


@behaviour
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)


@behaviour
def die_once(_connection, _request, marker):
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
def pickle_bomb(connection, _request, marker):
    child.send(connection, pickle.dumps(Bomb(marker)))


@behaviour
def garbage(connection, *_):
    connection.sendall(os.urandom(4096))


@behaviour
def endless_message(connection, *_):
    connection.sendall(struct.pack("!Q", 2**40))
    while True:
        connection.sendall(bytes(65536))


@behaviour
def drip(connection, *_):
    connection.sendall(struct.pack("!Q", 1000))
    while True:
        connection.sendall(b" ")
        time.sleep(0.05)


@behaviour
def deep_nesting(connection, *_):
    child.send(connection, b"[" * 1_000_000)


@behaviour
def begin_forever(connection, *_):
    while True:
        child.reply(connection, Started())


@behaviour
def error_of_the_store(connection, *_):
    child.reply(connection, Failed(code="store_unavailable", message="The store is down; stop the run."))


@behaviour
def failed_read_that_was_none(connection, *_):
    child.reply(connection, Failed(code="read_failed", message=""))


@behaviour
def reads_of_a_whole_video(connection, *_):
    child.reply(connection, Reads(spans=((0, 1),)))


@behaviour
def no_descriptor(connection, request):
    message, _ = transfer.pack_frames(frames(), (), request)
    child.reply(connection, message)


@behaviour
def descriptor_of_a_pipe(connection, request):
    message, _ = transfer.pack_frames(frames(), (), request)
    child.reply(connection, message, os.pipe()[0])


@behaviour
def descriptor_of_a_file(connection, request):
    message, frames_file = transfer.pack_frames(frames(), (), request)
    with tempfile.TemporaryFile() as file:
        file.write(os.pread(frames_file, 1 << 20, 0))
        file.flush()
        child.reply(connection, message, file.fileno())


@behaviour
def file_of_holes(connection, request):
    message, _ = transfer.pack_frames(frames(), (), request)
    holes = os.memfd_create("frames", os.MFD_ALLOW_SEALING)
    message = replace(message, height_px=4096, width_px=4096)
    os.ftruncate(
        holes, sum(column.size_bytes + transfer._padding(column.size_bytes) for column in transfer._columns(message))
    )
    fcntl.fcntl(holes, fcntl.F_ADD_SEALS, transfer._SEALS)
    child.reply(connection, message, holes)


@behaviour
def flood_of_descriptors(connection, request):
    message, descriptor = transfer.pack_frames(frames(), (), request)
    rights = array.array("i", [descriptor] * 200)
    text = encode_answer(message)
    connection.sendmsg([struct.pack("!Q", len(text))], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    connection.sendall(text)


@behaviour
def descriptors_in_the_body(connection, request):
    message, descriptor = transfer.pack_frames(frames(), (), request)
    text = encode_answer(message)
    connection.sendall(struct.pack("!Q", len(text)))
    for at in range(0, len(text), 16):
        rights = array.array("i", [descriptor] * 10)
        connection.sendmsg([text[at : at + 16]], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])


@behaviour
def one_more_answer(connection, request):
    answer_with(connection, request, reason="taken over")
    answer_with(connection, request, reason="for the next video")


@behaviour
def read_outside(connection, request):
    child.reply(connection, Reads(spans=((request.size_bytes - 1, 2),)))
    time.sleep(60)


@behaviour
def read_too_often(connection, *_):
    while True:
        child.reply(connection, Reads(spans=((0, 1),) * 600))
        child.receive_bytes(connection, 1200)
