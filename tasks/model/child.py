"""The engine's process: `python -m tasks.model.child CONNECTION_FD LIFELINE_FD`.

Reads an EngineConfig, answers with EngineInfo or StartFailure, then answers batches until the
connection closes. It ends with its whole process group as soon as its parent is gone, even after
`kill -9`: the lifeline's other end is then closed by the kernel.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from multiprocessing.connection import Connection

from tasks.model.questions import StartFailure


def main() -> None:
    """Serve one parent."""
    started = time.perf_counter()
    connection = Connection(int(sys.argv[1]))
    threading.Thread(target=_end_with_parent, args=(int(sys.argv[2]),), daemon=True).start()
    config = connection.recv()
    try:
        from tasks.model.engine import Engine  # noqa: PLC0415 - importing vllm takes seconds and may fail

        engine = Engine(config, started=started)
        connection.send(engine.describe())
    except BaseException as error:
        traceback.print_exc()
        connection.send(StartFailure(message=f"{type(error).__name__}: {error}"))
        raise
    while True:
        try:
            batch = connection.recv()
        except EOFError:
            return
        try:
            connection.send(engine.answer(batch))
        except Exception as error:
            # An engine that failed once cannot be trusted with the next batch: say why, then end.
            traceback.print_exc()
            connection.send(StartFailure(message=f"{type(error).__name__}: {error}"))
            raise


def _end_with_parent(lifeline: int) -> None:
    os.read(lifeline, 1)
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    main()
