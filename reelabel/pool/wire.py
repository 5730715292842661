"""Messages between a pool and a decoding process over one socket.

A message is its length in eight bytes, its bytes, and at most one descriptor, sent along with the length. The pool
pickles its requests. What a decoding process sends is never unpickled, as a video may have taken it over: it is JSON of
bounded size, whose descriptor is a sealed memory file (`reelabel.pool.packing`).
"""

from __future__ import annotations

import array
import ctypes
import errno
import mmap
import os
import select
import socket
import struct
import time
import weakref
from typing import TYPE_CHECKING

import numpy as np

from reelabel.errors import InvalidReplyError, ProcessDiedError

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt


_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_ssize_t)
_LIBC.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_FAILED = ctypes.c_void_p(-1).value


class _Map:
    """A mapping of the address space, unmapped with the last array that uses it."""

    def __init__(self, address: int, size_bytes: int) -> None:
        self.__array_interface__ = {"shape": (size_bytes,), "typestr": "|u1", "data": (address, False), "version": 3}
        weakref.finalize(self, _LIBC.munmap, address, size_bytes).atexit = False


def map_privately(descriptor: int, size_bytes: int) -> npt.NDArray[np.uint8]:
    """Map a file, until the last array that uses its bytes is gone; what is written to them stays in this process.

    `mmap.mmap` would keep a descriptor open for as long: a program that keeps the frames of a thousand videos could
    open no other file. Raises OSError if the kernel refuses.
    """
    address = _LIBC.mmap(None, size_bytes, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE, descriptor, 0)
    if address == _FAILED:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return np.asarray(_Map(address, size_bytes))


MAX_ANSWER_BYTES = 1024**2
READ, NOT_READ = b"\1", b"\0"  # whether the bytes of requested ranges follow
_LENGTH = struct.Struct("!Q")
_DESCRIPTOR_BYTES = array.array("i").itemsize
_PIECE_BYTES = 256 * 1024
_IN_TRANSIT_S = 0.01


def send(connection: socket.socket, data: bytes, descriptor: int | None = None) -> None:
    """Send a message, in a decoding process, which ends if the pool is gone."""
    rights = [] if descriptor is None else [_rights(descriptor)]
    try:
        _send_length(connection, len(data), rights)
        connection.sendall(data)
    except OSError:
        os._exit(0)


def _send_length(connection: socket.socket, size: int, rights: list[tuple[int, int, bytes]]) -> None:
    while True:
        try:
            connection.sendmsg([_LENGTH.pack(size)], rights)
        except OSError as error:
            # Of all processes of a user, no more descriptors may be in transit than each may have open.
            if error.errno != errno.ETOOMANYREFS:
                raise
            time.sleep(_IN_TRANSIT_S)
        else:
            return


def receive(connection: socket.socket) -> tuple[bytes, int | None]:
    """Receive a message, in a decoding process, which ends if the pool is gone."""
    head, rights, _, _ = connection.recvmsg(_LENGTH.size, socket.CMSG_SPACE(_DESCRIPTOR_BYTES), socket.MSG_CMSG_CLOEXEC)
    head += receive_bytes(connection, _LENGTH.size - len(head))
    return receive_bytes(connection, *_LENGTH.unpack(head)), next(iter(_descriptors(rights)), None)


def receive_bytes(connection: socket.socket, size: int) -> bytes:
    """Receive exactly `size` bytes, in a decoding process, which ends if the pool is gone."""
    data = bytearray(size)
    view = memoryview(data)
    while view:
        try:
            count = connection.recv_into(view)
        except OSError:
            count = 0
        if not count:
            os._exit(0)
        view = view[count:]
    return bytes(data)


class Channel:
    """The pool's end of a socket, which trusts nothing that it receives.

    `watch` is called before each wait; it raises to end it, or returns the seconds after which to be called again.
    """

    watch: Callable[[], float]

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._poll = select.poll()

    def close(self) -> None:
        self._socket.close()

    def send(self, data: bytes, descriptor: int | None = None) -> None:
        """Send a message; raise ProcessDiedError if the process has closed its end."""
        rights = [] if descriptor is None else [_rights(descriptor)]
        self._wait_for_room()
        try:
            sent = self._socket.sendmsg([_LENGTH.pack(len(data))], rights)
        except OSError:
            raise ProcessDiedError from None
        if sent < _LENGTH.size:  # room for less than a length, in a buffer that was empty
            raise ProcessDiedError
        self.send_bytes(data)

    def send_bytes(self, data: bytes) -> None:
        """Send bytes that the process expects.

        Raises ProcessDiedError if it has closed its end, or sends something instead of receiving.
        """
        view = memoryview(data)
        while view:
            self._wait_for_room()
            try:
                view = view[self._socket.send(view[:_PIECE_BYTES]) :]
            except BlockingIOError:
                continue
            except OSError:
                raise ProcessDiedError from None

    def receive(self) -> tuple[bytes, int | None]:
        """Receive a message and its descriptor.

        Raises ProcessDiedError if the process has closed its end, and InvalidReplyError if the message is too long, or
        has several descriptors.
        """
        descriptors: list[int] = []
        try:
            head = b""
            while len(head) < _LENGTH.size:
                head += self._receive_head(_LENGTH.size - len(head), descriptors)
            (size,) = _LENGTH.unpack(head)
            if size > MAX_ANSWER_BYTES:
                raise InvalidReplyError(f"a message of {size:,} bytes")  # noqa: TRY301 - after closing descriptors
            data = bytearray()
            while len(data) < size:
                data += self._receive_some(size - len(data))
        except BaseException:
            for descriptor in descriptors:
                os.close(descriptor)
            raise
        return bytes(data), descriptors[0] if descriptors else None

    def _receive_head(self, size: int, descriptors: list[int]) -> bytes:
        self._wait(select.POLLIN)
        try:
            head, rights, flags, _ = self._socket.recvmsg(
                size, socket.CMSG_SPACE(2 * _DESCRIPTOR_BYTES), socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            return b""
        except OSError:
            raise ProcessDiedError from None
        descriptors += _descriptors(rights)
        if not head:
            raise ProcessDiedError
        if flags & socket.MSG_CTRUNC or len(descriptors) > 1:  # the kernel closes those that did not fit
            raise InvalidReplyError("several descriptors")
        return head

    def _receive_some(self, size: int) -> bytes:
        self._wait(select.POLLIN)
        try:
            data = self._socket.recv(min(size, _PIECE_BYTES))  # without room for descriptors, the kernel closes them
        except BlockingIOError:
            return b""
        except OSError:
            raise ProcessDiedError from None
        if not data:
            raise ProcessDiedError
        return data

    def has_input(self) -> bool:
        """Return whether there is something to receive, or the process has closed its end."""
        self._watch_for(select.POLLIN)
        return bool(self._poll.poll(0))

    def _wait_for_room(self) -> None:
        # Descriptors that it sends meanwhile would stay in transit, where other processes can then send none.
        if not self._wait(select.POLLOUT | select.POLLIN) & select.POLLOUT:
            raise ProcessDiedError

    def _wait(self, events: int) -> int:
        """Wait for any of the events; return those that have occurred."""
        self._watch_for(events)
        while not (found := self._poll.poll(self.watch() * 1e3)):
            pass
        return found[0][1]

    def _watch_for(self, events: int) -> None:
        try:
            self._poll.register(self._socket, events)
        except ValueError:  # another thread has closed it with the pool
            raise ProcessDiedError from None


def _rights(descriptor: int) -> tuple[int, int, bytes]:
    return socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]).tobytes()


def _descriptors(rights: list[tuple[int, int, bytes]]) -> list[int]:
    found = array.array("i")
    for level, kind, data in rights:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found.frombytes(data[: len(data) // _DESCRIPTOR_BYTES * _DESCRIPTOR_BYTES])
    return list(found)
