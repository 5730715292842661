"""The engine's process: `python -m tasks.model.child CONNECTION_FD LIFELINE_FD`.

Reads an EngineConfig, replies with EngineInfo or EngineFailure, then answers batches until the
connection closes. It kills its whole process group as soon as its parent is gone, even after
`kill -9`: the kernel then closes the other end of the lifeline pipe.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
import traceback
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from infra.errors import ReelabelError
from tasks.model.questions import EngineFailure

if TYPE_CHECKING:
    from tasks.model.questions import EngineConfig


def main() -> None:
    """Serve one parent."""
    started = time.perf_counter()
    connection = Connection(int(sys.argv[1]))
    config = connection.recv()
    try:
        # Imported here: importing vllm takes seconds, and may fail.
        from tasks.model.engine import Engine, import_model  # noqa: PLC0415
        from tasks.model.serve import serve  # noqa: PLC0415

        import_model(config)
        # Forked while there is neither a thread nor an engine, so that vllm is imported once for all.
        renderers = ProcessPoolExecutor(
            config.render_processes, get_context("fork"), _start_renderer, (config, connection)
        )
        renderer_started = renderers.submit(bool)
        threading.Thread(target=_end_with_parent, args=(int(sys.argv[2]),), daemon=True).start()
        engine = Engine(config, started=started)
        renderer_started.result()
        _freeze_garbage_collector()
        serve(connection, engine, renderers)
    except BaseException as error:
        # An engine that failed once cannot be trusted with the next batch: report the cause, then exit.
        traceback.print_exc()
        ours = isinstance(error, ReelabelError)
        connection.send(EngineFailure(message=str(error) if ours else f"{type(error).__name__}: {error}"))
        raise


def _start_renderer(config: EngineConfig, connection: Connection) -> None:
    from tasks.model.inputs import start_worker  # noqa: PLC0415 - already imported in the parent

    connection.close()  # otherwise the parent would see no EOF when the engine exits
    start_worker(config)
    _freeze_garbage_collector()


def _freeze_garbage_collector() -> None:
    """Exempt everything that vLLM has loaded so far from garbage collection, which would traverse it repeatedly."""
    gc.collect()
    gc.freeze()


def _end_with_parent(lifeline: int) -> None:
    os.read(lifeline, 1)
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    main()
