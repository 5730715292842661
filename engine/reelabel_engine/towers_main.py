"""The process of the towers: `python -m reelabel_engine.towers_main CONNECTION_FD LIFELINE_FD`.

Reads a configuration, replies with what it loaded or why it could not, then serves requests in order until the
connection closes. It kills its whole process group as soon as its parent is gone, as the engine's process does.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from reelabel_engine.__main__ import collect_garbage_rarely, end_with_parent, explain_failure
from reelabel_engine.towers_protocol import Message, TowersConfig, receive, send

if TYPE_CHECKING:
    from collections.abc import Callable

    from reelabel_engine.towers import Towers


def load_towers(config: TowersConfig, *, started: float) -> Towers:
    """Import torch and transformers, and load the model."""
    from reelabel_engine.towers import Towers  # noqa: PLC0415 - takes seconds, and may fail

    return Towers(config, started=started)


def main(load: Callable[..., Towers] = load_towers) -> None:
    """Serve one parent.

    Args:
        load: Loads the towers; called once the connection is open, so that the parent learns why it fails.
    """
    started = time.perf_counter()
    collect_garbage_rarely()
    connection = Connection(int(sys.argv[1]))
    threading.Thread(target=end_with_parent, args=(int(sys.argv[2]),), daemon=True).start()
    try:
        body = receive(connection).body
        config = TowersConfig(**body | {"devices": tuple(body["devices"])})
        towers = load(config, started=started)
        send(connection, Message.of_info(towers.describe()))
        while True:
            request = receive(connection)
            send(connection, _answer(towers, request))
    except EOFError:
        return
    except BaseException as error:
        failure = explain_failure(error)
        body = {"message": failure.message, "is_disk_full": failure.is_disk_full}
        with suppress(OSError):
            send(connection, Message("failure", body))
        with suppress(OSError):  # the log's disk may be full
            traceback.print_exc()
        raise


def _answer(towers: Towers, request: Message) -> Message:
    if request.kind == "frames":
        return Message("vectors", {}, (towers.embed_frames(request.arrays),))
    texts = request.body["texts"]
    if request.kind == "texts":
        return Message("vectors", {}, (towers.embed_texts(texts),))
    return Message("counts", {"tokens": towers.count_tokens(texts)})


if __name__ == "__main__":
    main()
