"""A request is worked on in a thread until it is answered, or until nobody waits for the answer."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, TypeVar

from flows.serve.refusals import ClientGoneError

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    from starlette.requests import Request

Result = TypeVar("Result")
_LOOK_S = 0.25


class Waiting:
    """Whether a client still waits for its answer."""

    def __init__(self) -> None:
        """Start with one that does."""
        self._is_gone = threading.Event()

    def leave(self) -> None:
        """Note that it has gone."""
        self._is_gone.set()

    def go_on(self) -> None:
        """Go on, if it waits.

        Raises:
            ClientGoneError: It does not.
        """
        if self._is_gone.is_set():
            raise ClientGoneError


async def in_thread(request: Request, threads: Executor, work: Callable[[Callable[[], None]], Result]) -> Result:
    """Work in a thread, and watch meanwhile whether the client is there.

    The place of a request is free only when its work has ended, so that no more requests are in progress than there are
    places: the work of a client that has gone ends at its next stage.

    Args:
        request: The request.
        threads: One for each place.
        work: Given a function to call between its stages, which raises if the client has gone.

    Raises:
        ClientGoneError: The client has gone.
    """
    waiting = Waiting()
    working = asyncio.get_running_loop().run_in_executor(threads, work, waiting.go_on)
    try:
        while not working.done():
            await asyncio.wait([working], timeout=_LOOK_S)
            if not working.done() and await request.is_disconnected():
                waiting.leave()
                await asyncio.wait([working])
        return working.result()
    finally:
        waiting.leave()  # also where the service ends before the work does
