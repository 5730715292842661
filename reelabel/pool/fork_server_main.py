"""The process that decoding processes are forked from: started by `reelabel.pool.fork_server`, it sees no video.

It has one thread and one connection, over which its pool tells it to fork a process, or to wait for one.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import socket
import traceback
from contextlib import suppress
from typing import NoReturn

from reelabel.pool.fork_server import FORK, NUMBER
from reelabel.pool.warm_up import warm_up
from reelabel.sandbox.linux import end_with_parent

_STDERR = 2


def main(control: int, child: str) -> None:
    """Serve the pool at the other end of a socket; each process runs `main` of the module `child`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()
    connection = socket.socket(fileno=control)
    with suppress(Exception):  # each process tries again, and reports it to its pool
        warm_up()
        importlib.import_module(child)
    gc.freeze()  # the garbage collector must not touch shared objects: that would copy their pages
    while True:
        _serve(connection, child)


def _serve(connection: socket.socket, child: str) -> None:
    order, descriptors, _, _ = socket.recv_fds(connection, 1 + NUMBER.size, 2)
    if not order:
        os._exit(0)  # the pool is gone
    if order == FORK:
        answer = _fork(connection, child, *descriptors)
        for each in descriptors:
            os.close(each)
    else:
        _, status = os.waitpid(NUMBER.unpack(order[1:])[0], 0)
        answer = os.waitstatus_to_exitcode(status)
    connection.sendall(NUMBER.pack(answer))


def _fork(connection: socket.socket, child: str, pool: int, errors: int) -> int:
    try:
        pid = os.fork()
    except OSError as error:
        return -(error.errno or 1)
    if not pid:
        connection.close()
        _become_child(child, pool, errors)
    return pid


def _become_child(child: str, pool: int, errors: int) -> NoReturn:
    try:
        os.dup2(errors, _STDERR)
        os.close(errors)
        importlib.import_module(child).main(pool)
    except BaseException:  # noqa: BLE001 - it must not go on as the server
        traceback.print_exc()
    finally:
        os._exit(1)
