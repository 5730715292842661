"""The engine's process: `python -m reelabel_engine CONNECTION_FD`.

Loads what the first message says, an engine or the encoder, replies with what it loaded or why it could not, then
answers requests until the connection closes: then it kills its whole process group. See `keep`.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from ctypes import CDLL
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from reelabel.disk import full_disk
from reelabel.errors import ReelabelError
from reelabel_engine import keep
from reelabel_engine.environment import cache_folders
from reelabel_engine.loop import serve, serve_encoder
from reelabel_engine.model_errors import describe_error
from reelabel_engine.protocol import EncoderConfig, EngineConfig, EngineFailure, LoadEncoder, LoadEngine, receive, send

if TYPE_CHECKING:
    from collections.abc import Callable

    from reelabel_engine.encoder import Encoder
    from reelabel_engine.engine import Engine
    from reelabel_engine.worker import Worker


class Implementation(NamedTuple):
    """What runs inside the engine's process; the process itself and its protocol are the same for each."""

    load: Callable[..., Engine]  # takes its configuration, and as `started` when the process began
    worker: Callable[[EngineConfig], Worker]  # in each process that renders


def import_vllm(config: EngineConfig) -> Implementation:
    """Import vLLM and the model's class before the workers are forked; takes seconds, and may fail."""
    from reelabel_engine.engine import Engine, import_model  # noqa: PLC0415
    from reelabel_engine.worker import Worker  # noqa: PLC0415

    import_model(config)
    return Implementation(load=Engine, worker=Worker)


def load_encoder(config: EncoderConfig, *, started: float) -> Encoder:
    """Import torch and transformers, and load the model; takes seconds, and may fail."""
    from reelabel_engine.encoder import Encoder  # noqa: PLC0415

    return Encoder(config, started=started)


def main(
    import_engine: Callable[[EngineConfig], Implementation] = import_vllm,
    load_encoder: Callable[..., Encoder] = load_encoder,
) -> None:
    started = time.perf_counter()
    _collect_garbage_rarely()
    connection = Connection(int(sys.argv[1]))
    try:
        load = receive(connection)
        if isinstance(load, LoadEncoder):
            keep.Client(connection)
            serve_encoder(connection, load_encoder(load.config, started=started))
        elif isinstance(load, LoadEngine):
            _serve_engine(connection, load.config, import_engine, started)
        else:
            raise TypeError(f"{type(load).__name__} is nothing to load")  # noqa: TRY301 - like any fault
    except BaseException as error:
        # A process that failed once cannot be trusted with the next request: report the cause, then exit.
        with suppress(OSError):
            send(connection, _explain_failure(error))
        with suppress(OSError):  # the log's disk may be full
            traceback.print_exc()
        raise


def _serve_engine(
    connection: Connection,
    config: EngineConfig,
    import_engine: Callable[[EngineConfig], Implementation],
    started: float,
) -> None:
    implementation = import_engine(config)
    # Forked while there is neither a thread nor an engine, so that vllm is imported once for all.
    renderers = ProcessPoolExecutor(
        config.render_processes, get_context("fork"), _start_renderer, (implementation.worker, config, connection)
    )
    renderer_started = renderers.submit(bool)
    client: keep.Client | None = keep.Client(connection)
    engine = implementation.load(config, started=started)
    renderer_started.result()
    _freeze_garbage_collector()
    while client:
        leaving = serve(client.connection, engine, lambda *call: renderers.submit(_in_worker, *call))
        if leaving is None:
            return
        client = client.wait_for_next(leaving, model=config.name)
    keep.end()


def _explain_failure(error: BaseException) -> EngineFailure:
    # Measured here and now: files of this process disappear with it.
    log = Path("/proc/self/fd/2").resolve()
    log_folders = [log.parent] if log.is_file() else []  # the process that filters it has it otherwise
    if full := full_disk([*log_folders, *cache_folders(os.environ)], error):
        return EngineFailure(message=full.message, is_disk_full=True)
    return EngineFailure(message=str(error) if isinstance(error, ReelabelError) else describe_error(error, log))


_workers: list[Worker] = []  # of this process: one, if it renders


def _in_worker(method: str, *arguments: object) -> Any:  # noqa: ANN401 - of the method
    return getattr(_workers[0], method)(*arguments)


def _start_renderer(start: Callable[[EngineConfig], Worker], config: EngineConfig, connection: Connection) -> None:
    connection.close()  # otherwise the parent would see no EOF when the engine exits
    CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # nobody ends it if the engine is killed while it is kept
    _workers.append(start(config))
    _freeze_garbage_collector()


_PR_SET_PDEATHSIG = 1
# Python's own first threshold is 700.
_ALLOCATIONS = 10_000


def _collect_garbage_rarely() -> None:
    """Collect garbage more rarely than Python does, and not once more when the process ends."""
    gc.set_threshold(_ALLOCATIONS, *gc.get_threshold()[1:])
    atexit.register(gc.freeze)


def _freeze_garbage_collector() -> None:
    """Exempt everything that vLLM has loaded so far from garbage collection, which would traverse it repeatedly."""
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    main()
