"""Work of sessions that blocks: decoding, the model, the database; each piece in a thread beside the event loop.

The threads are daemons, unlike those of `asyncio.to_thread`: a store that does not respond keeps no process from
ending.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future
    from collections.abc import AsyncGenerator, Callable, Generator

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(work: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
    """Return what a call returns; if this is cancelled, the call goes on, and its result is lost."""
    loop = asyncio.get_running_loop()
    returned: Future[T] = loop.create_future()

    def run() -> None:
        try:
            result = work(*args, **options)
        except BaseException as error:  # noqa: BLE001 - for whoever awaits it
            _call(loop, _settle, returned, returned.set_exception, error)
        else:
            _call(loop, _settle, returned, returned.set_result, result)

    threading.Thread(target=run, name="live", daemon=True).start()
    return await returned


async def iterate_in_thread(items: Generator[T, None, None]) -> AsyncGenerator[T, None]:
    """Yield items as they come; if this is closed, they are closed at the next one."""
    loop = asyncio.get_running_loop()
    arrived: asyncio.Queue[tuple[T] | BaseException | None] = asyncio.Queue()
    is_closed = threading.Event()

    def run() -> None:
        end: BaseException | None = None
        try:
            with closing(items):
                for item in items:
                    if is_closed.is_set():
                        break
                    _call(loop, arrived.put_nowait, (item,))
        except BaseException as error:  # noqa: BLE001 - for whoever iterates
            end = error
        _call(loop, arrived.put_nowait, end)

    threading.Thread(target=run, name="live-answer", daemon=True).start()
    try:
        while isinstance(item := await arrived.get(), tuple):
            yield item[0]
        if item is not None:
            raise item
    finally:
        is_closed.set()


def _call(loop: AbstractEventLoop, function: Callable[..., object], *args: Any) -> None:  # noqa: ANN401 - the function's
    with suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(function, *args)


def _settle(returned: Future[T], settle: Callable[[Any], None], outcome: object) -> None:
    if not returned.done():  # it may be cancelled
        settle(outcome)
