"""A request is worked on in a thread until it is answered, or until nobody waits for the answer."""

from __future__ import annotations

import asyncio
import threading
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, TypeVar

from flows.serve.refusals import ClientGoneError, RequestRefusedError
from reelabel.waiting import AbandonedError, working_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    from starlette.requests import Request

Result = TypeVar("Result")
_LOOK_S = 0.25


async def in_thread(request: Request, threads: Executor, work: Callable[[], Result], *, timeout_s: float) -> Result:
    """Work in a thread, and watch meanwhile whether the client is there.

    The place of a request is free only when its work has ended, so that no more requests are in progress than there are
    places: the work of a client that has gone, or that takes too long, ends where it next waits for something.

    Args:
        request: The request.
        threads: One for each place.
        work: What to do.
        timeout_s: Maximum seconds.

    Raises:
        RequestRefusedError: It took longer.
        ClientGoneError: The client has gone.
    """
    is_over, deadline_s = threading.Event(), time.monotonic() + timeout_s
    has_gone = False

    def run() -> Result | None:
        with working_until(is_over.is_set):
            try:
                return work()
            except AbandonedError:
                return None

    working = asyncio.get_running_loop().run_in_executor(threads, run)
    try:
        while not working.done():
            await asyncio.wait([working], timeout=_LOOK_S)
            if not working.done() and (time.monotonic() > deadline_s or await request.is_disconnected()):
                has_gone = time.monotonic() <= deadline_s
                is_over.set()
                await asyncio.wait([working])
        answer = working.result()
    finally:
        is_over.set()  # also where the service ends before the work does
    if has_gone:
        raise ClientGoneError
    if answer is None:
        raise RequestRefusedError(
            f"The request took longer than {timeout_s:g} seconds; cut the video, ask for fewer chunks, or raise "
            "serve.request_timeout_s.",
            code="deadline_exceeded",
            status=HTTPStatus.GATEWAY_TIMEOUT,
        )
    return answer
