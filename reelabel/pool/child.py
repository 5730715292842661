"""A decoding process: forked by `reelabel.pool.fork_server_main`, it decodes one video after another.

Everything that it will need is imported, and has been used once, before it is forked. From then on, it can open
no file and no connection, and start no program: videos reach it as open descriptors, or as ranges that the pool reads
for it. It ends when the pool closes its end of the socket.
"""

from __future__ import annotations

import importlib
import math
import os
import pickle
import signal
import socket
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from reelabel.extract import VideoInOrder, extract_file, extract_ranges
from reelabel.pool.messages import (
    ReadFailedError,
    Reads,
    Ready,
    Started,
    Unavailable,
    clip,
    describe_failure,
    encode_answer,
)
from reelabel.pool.transfer import pack_frames, pack_index
from reelabel.pool.warm_up import warm_up
from reelabel.pool.wire import READ, receive, receive_bytes, send
from reelabel.read_index import read_index
from reelabel.sandbox import enter_sandbox
from reelabel.sources.sparse_file import ByteRange, SparseFile
from reelabel.sources.video_file import VideoFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from reelabel.pool.messages import Answer, Request, Setup
    from reelabel.sampled_frames import SampledFrames
    from reelabel.strategies.keyframe_table import SavedIndex

_STDIN, _STDERR = 0, 2


def main(descriptor: int) -> None:
    """Serve the pool at the other end of a socket."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = socket.socket(fileno=descriptor)
    _start(connection)
    while True:  # until the pool is gone
        _serve(connection)


def reply(connection: socket.socket, answer: Answer, descriptor: int | None = None) -> None:
    """Send an answer to the pool."""
    send(connection, encode_answer(answer), descriptor)


def _start(connection: socket.socket) -> None:
    setup: Setup = pickle.loads(receive(connection)[0])  # noqa: S301 - from the pool
    try:
        prepare(setup)
        os.dup2(_STDIN, _STDERR)  # nothing that a video has written is kept
        missing = enter_sandbox(
            setup.sandbox, memory_bytes=setup.memory_bytes, threads=setup.threads, die_with_parent=True
        )
    except Exception as error:  # noqa: BLE001 - the pool reports it
        reply(connection, Unavailable(message=clip(str(error))))
        os._exit(1)
    reply(connection, Ready(missing=missing))


def prepare(setup: Setup) -> None:
    """Import what processes with this setup need, and use it once; again, this does nothing."""
    if setup.main:
        importlib.import_module("multiprocessing.spawn").prepare(setup.main)
    for module in setup.modules:
        importlib.import_module(module)
    warm_up()


def _serve(connection: socket.socket) -> None:
    data, descriptor = receive(connection)
    reply(connection, Started())
    answer: Answer
    frames: int | None = None
    try:
        request: Request = pickle.loads(data)  # noqa: S301 - from the pool
        if request.in_order:
            _extract_in_order(connection, request, descriptor)
            return
        if request.lists:
            with _opened(connection, request, descriptor) as video:
                read = read_index(video, request.limits, lists=request.lists, of_any_size=request.of_any_size)
            answer, frames = pack_index(*read, request)
            del read
        else:
            got, index = extract(connection, request, descriptor)
            answer, frames = pack_frames(got, index, request)
            del got, index
    except Exception as error:  # noqa: BLE001 - a decoder or scaler may raise anything for bad input
        answer = describe_failure(error)
    finally:
        if descriptor is not None:
            os.close(descriptor)
    _reply_with(connection, answer, frames)


def _reply_with(connection: socket.socket, answer: Answer, descriptor: int | None) -> None:
    """Send an answer with a descriptor, which is closed here."""
    reply(connection, answer, descriptor)
    if descriptor is not None:
        os.close(descriptor)


def _extract_in_order(connection: socket.socket, request: Request, descriptor: int | None) -> None:
    """Answer requests for one segment after the other of a video, until the pool has all that it wants."""
    assert descriptor is not None
    file = VideoFile(descriptor, request.size_bytes, request.suffix)
    with closing(VideoInOrder(file, request.limits, by_packets=request.wanted is not None)) as video:
        while True:
            got = video.extract(request.sampling, request.segment, native=request.native, wanted=request.wanted)
            _reply_with(connection, *pack_frames(got, (), request))
            del got
            following: Request | None = pickle.loads(receive(connection)[0])  # noqa: S301 - from the pool
            if following is None:
                return
            reply(connection, Started())
            request = following


def extract(connection: socket.socket, request: Request, descriptor: int | None) -> tuple[SampledFrames, SavedIndex]:
    """Extract what is requested."""
    names = ("sampling", "limits", "threads", "segment", "native", "windows", "roughly", "wanted")
    options: dict[str, Any] = {name: getattr(request, name) for name in names}
    if descriptor is None:
        source = _PoolSource(connection, request.size_bytes)
        try:
            return extract_ranges(source, known=request.known or (), **options)
        finally:
            source.settle()
    file = VideoFile(descriptor, request.size_bytes, request.suffix)
    options |= {name: getattr(request, name) for name in ("every", "fast_only")}
    return extract_file(file, **options), ()


@contextmanager
def _opened(connection: socket.socket, request: Request, descriptor: int | None) -> Iterator[VideoFile | SparseFile]:
    """Open the video whose index is to be read."""
    if descriptor is not None:
        yield VideoFile(descriptor, request.size_bytes, request.suffix)
        return
    source = _PoolSource(connection, request.size_bytes)
    try:
        yield SparseFile(source, request.known if isinstance(request.known, tuple) else ())
    finally:
        source.settle()


class _PoolSource:
    """A video whose ranges the pool reads; a `reelabel.sources.sparse_file.BatchSource`."""

    max_wait_s = math.inf  # the pool watches the time

    def __init__(self, connection: socket.socket, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self._connection = connection
        self._arriving: Iterator[bytes] = iter(())

    def read(self, start: int, size: int) -> bytes:
        """Read one range."""
        return next(self.read_many([ByteRange(start, size)]))

    def settle(self) -> None:
        """Receive what is still to come, before anything else is said."""
        with suppress(ReadFailedError):
            for _ in self._arriving:
                pass

    def read_many(self, spans: Sequence[ByteRange], *, is_kept: bool = True) -> Iterator[bytes]:
        """Read ranges, which the pool does concurrently."""
        self.settle()
        reply(self._connection, Reads(spans=tuple(spans), is_kept=is_kept))
        self._arriving = self._receive(spans)
        return self._arriving

    def _receive(self, spans: Sequence[ByteRange]) -> Iterator[bytes]:
        for span in spans:
            if receive_bytes(self._connection, 1) != READ:
                raise ReadFailedError
            yield receive_bytes(self._connection, span.size)
