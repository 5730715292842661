"""A decoding process: forked by `reelabel.pool.fork_server_main`, it decodes one video after another.

Everything that it will need is imported, and has been used once, before it is forked. From then on, it can open
no file and no connection, and start no program: videos reach it as open descriptors, or as ranges that the pool reads
for it. It ends when the pool closes its end of the socket.
"""

from __future__ import annotations

import math
import os
import pickle
import signal
import socket
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from reelabel.decode.decoder import LocalDecoder, open_decoder
from reelabel.pool.messages import ReadFailedError, Reads, Ready, Started, Unavailable, describe_failure
from reelabel.pool.packing import pack
from reelabel.pool.warm_up import warm_up
from reelabel.pool.wire import READ, receive, receive_bytes, send
from reelabel.sandbox import enter_sandbox
from reelabel.sources.sparse_file import ByteRange
from reelabel.sources.video_file import VideoFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from reelabel.decode.canvas import Decoded
    from reelabel.index import VideoIndex
    from reelabel.pool.messages import Call, Open, Reply, Setup

_STDIN, _STDERR = 0, 2


def main(descriptor: int) -> None:
    """Serve the pool at the other end of a socket."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = socket.socket(fileno=descriptor)
    _start(connection)
    while True:  # until the pool is gone
        _serve(connection)


def reply(connection: socket.socket, message: Reply, descriptor: int | None = None) -> None:
    """Send a message to the pool, and a descriptor, if it is not that of the message's arrays."""
    send(connection, pack(message)[0], descriptor)


def _start(connection: socket.socket) -> None:
    setup: Setup = pickle.loads(receive(connection)[0])  # noqa: S301 - from the pool
    try:
        warm_up()
        os.dup2(_STDIN, _STDERR)  # nothing that a video has written is kept
        missing = enter_sandbox(
            setup.sandbox, memory_bytes=setup.memory_bytes, threads=setup.threads, die_with_parent=True
        )
    except Exception as error:  # noqa: BLE001 - the pool reports it
        reply(connection, Unavailable(message=str(error)))
        os._exit(1)
    reply(connection, Ready(missing=missing))


def _serve(connection: socket.socket) -> None:
    data, descriptor = receive(connection)
    reply(connection, Started())
    opening: Open = pickle.loads(data)  # noqa: S301 - from the pool
    try:
        with closing(Opened(connection, opening, descriptor)) as video:
            while True:
                call: Call | None = pickle.loads(receive(connection)[0])  # noqa: S301 - from the pool
                if call is None:
                    return
                answer(connection, video, call)
    finally:
        if descriptor is not None:
            os.close(descriptor)


def answer(connection: socket.socket, video: Opened, call: Call) -> None:
    try:
        data, arrays = pack(video.call(call))
    except Exception as error:  # noqa: BLE001 - a decoder or scaler may raise anything for bad input
        failed = describe_failure(error, frames_decoded=video.decoder.frames_decoded if video.decoder else 0)
        reply(connection, failed)
        return
    send(connection, data, arrays)
    if arrays is not None:
        os.close(arrays)


class Opened:
    """A video of the pool: an open file, or, without a descriptor, ranges that the pool reads."""

    def __init__(self, connection: socket.socket, opening: Open, descriptor: int | None) -> None:
        self.decoder: LocalDecoder | None = None
        self.descriptor, self.size_bytes = descriptor, opening.size_bytes
        self._opening, self._source = opening, _PoolSource(connection, opening.size_bytes)

    def close(self) -> None:
        """Close it, but not the descriptor."""
        if self.decoder:
            with suppress(Exception):  # a decoder may raise anything
                self.decoder.close()

    def call(self, call: Call) -> VideoIndex | Decoded:
        decoder = self.decoder = self.decoder or self._open()
        try:
            result: VideoIndex | Decoded = getattr(decoder, call.method)(*call.arguments, **call.options)
        finally:
            self._source.wait()
        return result

    def _open(self) -> LocalDecoder:
        opening, video = self._opening, self._source
        file = None if self.descriptor is None else VideoFile(self.descriptor, opening.size_bytes, opening.suffix)
        return open_decoder(file or video, opening.limits, threads=opening.threads, known=opening.known)


class _PoolSource:
    """A video whose ranges the pool reads; a `reelabel.sources.sparse_file.BatchSource`."""

    max_wait_s = math.inf  # the pool watches the time

    def __init__(self, connection: socket.socket, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self._connection = connection
        self._arriving: Iterator[bytes] = iter(())

    def read(self, start: int, size: int) -> bytes:
        return next(self.read_many([ByteRange(start, size)]))

    def wait(self) -> None:
        """Receive what is still to come, before anything else is said."""
        with suppress(ReadFailedError):
            for _ in self._arriving:
                pass

    def read_many(self, spans: Sequence[ByteRange]) -> Iterator[bytes]:
        self.wait()
        reply(self._connection, Reads(spans=tuple(spans)))
        self._arriving = self._receive(spans)
        return self._arriving

    def _receive(self, spans: Sequence[ByteRange]) -> Iterator[bytes]:
        for span in spans:
            if receive_bytes(self._connection, 1) != READ:
                raise ReadFailedError
            yield receive_bytes(self._connection, span.size)
