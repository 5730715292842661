"""The engine's process: `python -m tasks.model.child CONNECTION_FD LIFELINE_FD`.

Reads an EngineConfig, answers with EngineInfo or EngineFailure, then answers batches until the
connection closes. It ends with its whole process group as soon as its parent is gone, even after
`kill -9`: the lifeline's other end is then closed by the kernel.
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
        is_up = renderers.submit(bool)
        threading.Thread(target=_end_with_parent, args=(int(sys.argv[2]),), daemon=True).start()
        engine = Engine(config, started=started)
        is_up.result()
        _spare_collector()
        serve(connection, engine, renderers)
    except BaseException as error:
        # An engine that failed once cannot be trusted with the next batch: say why, then end.
        traceback.print_exc()
        ours = isinstance(error, ReelabelError)
        connection.send(EngineFailure(message=str(error) if ours else f"{type(error).__name__}: {error}"))
        raise


def _start_renderer(config: EngineConfig, connection: Connection) -> None:
    from tasks.model.inputs import start_worker  # noqa: PLC0415 - imported by then

    connection.close()  # else the parent would not see it close with the engine
    start_worker(config)
    _spare_collector()


def _spare_collector() -> None:
    """Keep the garbage collector from walking again and again through what vLLM has imported and loaded for good."""
    gc.collect()
    gc.freeze()


def _end_with_parent(lifeline: int) -> None:
    os.read(lifeline, 1)
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    main()
