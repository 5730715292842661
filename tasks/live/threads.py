"""Blocking calls of sessions, such as decoding, the model and the database: each in a thread of its own.

The threads are daemons, unlike those of `asyncio.to_thread`, so that a store that does not respond does not keep the
process from exiting.
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
    """Return the result of a call; if this is cancelled, the call continues, and its result is dropped."""
    loop = asyncio.get_running_loop()
    returned: Future[T] = loop.create_future()

    def run() -> None:
        try:
            result = work(*args, **options)
        except BaseException as error:  # noqa: BLE001 - for the caller
            _call(loop, _settle, returned, returned.set_exception, error)
        else:
            _call(loop, _settle, returned, returned.set_result, result)

    threading.Thread(target=run, name="live", daemon=True).start()
    return await returned


async def iterate_in_thread(items: Generator[T, None, None], is_free: asyncio.Event) -> AsyncGenerator[T, None]:
    """Yield the items of a generator, which is closed at its next item if this is closed.

    `is_free` is unset until then: a generator may wait for long before it yields an item.
    """
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
        except BaseException as error:  # noqa: BLE001 - for the caller
            end = error
        _call(loop, arrived.put_nowait, end)
        _call(loop, is_free.set)

    threading.Thread(target=run, name="live-answer", daemon=True).start()
    is_free.clear()
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
