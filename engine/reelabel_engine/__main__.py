"""The engine's process: `python -m reelabel_engine CONNECTION_FD LIFELINE_FD`.

Reads an EngineConfig, replies with EngineInfo or EngineFailure, then answers batches until the
connection closes. It kills its whole process group as soon as its parent is gone, even after
`kill -9`: the kernel then closes the other end of the lifeline pipe.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
import threading
import time
import traceback
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from reelabel.disk import full_disk
from reelabel.errors import ReelabelError
from reelabel_engine.loop import serve
from reelabel_engine.model_errors import describe_error
from reelabel_engine.protocol import EngineFailure
from reelabel_engine.written_folders import written_folders

if TYPE_CHECKING:
    from collections.abc import Callable

    from reelabel_engine.engine import Engine
    from reelabel_engine.live.messages import LiveRequest
    from reelabel_engine.loop import VideoQuestions
    from reelabel_engine.protocol import EngineConfig


class Implementation(NamedTuple):
    """What runs inside the engine's process; the process itself and its protocol are the same for each.

    Attributes:
        load: Loads the engine; takes its configuration, and as `started` when the process began.
        start_renderer: Prepares a worker process for `render`.
        render: Renders the questions on several videos; returns, for each, a pickled list of `EngineRequest` or
            `QuestionFailure`.
        render_live: Renders the parts of a live prompt; returns a pickled `RenderedRequest`. None if no live sessions
            are taken.
    """

    load: Callable[..., Engine]
    start_renderer: Callable[[EngineConfig], None]
    render: Callable[[list[VideoQuestions]], list[bytes]]
    render_live: Callable[[LiveRequest], bytes] | None = None


def import_vllm(config: EngineConfig) -> Implementation:
    """Import vLLM and the model's class before the workers are forked; takes seconds, and may fail."""
    from reelabel_engine.engine import Engine, import_model  # noqa: PLC0415
    from reelabel_engine.renderer import initialize_worker, render_live, render_videos  # noqa: PLC0415

    import_model(config)
    return Implementation(load=Engine, start_renderer=initialize_worker, render=render_videos, render_live=render_live)


def main(import_implementation: Callable[[EngineConfig], Implementation] = import_vllm) -> None:
    """Serve one parent; import the implementation once connected, so that the parent learns why it fails."""
    started = time.perf_counter()
    collect_garbage_rarely()
    connection = Connection(int(sys.argv[1]))
    config = connection.recv()
    try:
        implementation = import_implementation(config)
        # Forked while there is neither a thread nor an engine, so that vllm is imported once for all.
        renderers = ProcessPoolExecutor(
            config.render_processes,
            get_context("fork"),
            _start_renderer,
            (implementation.start_renderer, config, connection),
        )
        renderer_started = renderers.submit(bool)
        threading.Thread(target=end_with_parent, args=(int(sys.argv[2]),), daemon=True).start()
        engine = implementation.load(config, started=started)
        renderer_started.result()
        _freeze_garbage_collector()
        render_live = implementation.render_live
        serve(
            connection,
            engine,
            lambda videos: renderers.submit(implementation.render, videos),
            (lambda request: renderers.submit(render_live, request)) if render_live else None,
        )
    except BaseException as error:
        # An engine that failed once cannot be trusted with the next batch: report the cause, then exit.
        connection.send(explain_failure(error))
        with suppress(OSError):  # the log's disk may be full
            traceback.print_exc()
        raise


def explain_failure(error: BaseException) -> EngineFailure:
    """Say why this process ends, and whether a full disk is the cause."""
    # Measured here and now: files of this process disappear with it.
    log = Path("/proc/self/fd/2").resolve()
    log_folders = [log.parent] if log.is_file() else []  # the process that filters it has it otherwise
    if full := full_disk([*log_folders, *written_folders(os.environ)], error):
        return EngineFailure(message=full.message, is_disk_full=True)
    return EngineFailure(message=str(error) if isinstance(error, ReelabelError) else describe_error(error, log))


def _start_renderer(start: Callable[[EngineConfig], None], config: EngineConfig, connection: Connection) -> None:
    connection.close()  # otherwise the parent would see no EOF when the engine exits
    start(config)
    _freeze_garbage_collector()


# Python's own first threshold is 700.
_ALLOCATIONS = 10_000


def collect_garbage_rarely() -> None:
    """Collect garbage more rarely than Python does, and not once more when the process ends."""
    gc.set_threshold(_ALLOCATIONS, *gc.get_threshold()[1:])
    atexit.register(gc.freeze)


def _freeze_garbage_collector() -> None:
    """Exempt everything that vLLM has loaded so far from garbage collection, which would traverse it repeatedly."""
    gc.collect()
    gc.freeze()


def end_with_parent(lifeline: int) -> None:
    """Wait until the other end of a pipe is closed, then kill the whole process group."""
    os.read(lifeline, 1)
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    main()
