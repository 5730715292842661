"""Prefetching: produce the next item in a thread while the caller works on the current one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from infra.logs import in_context

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

_T = TypeVar("_T")


def prefetch(items: Iterable[_T]) -> Generator[_T, None, None]:
    """Yield items in order, producing the next one in a background thread.

    A caller that does not take all items closes the generator, which waits for the one in the background.
    """
    remaining = ([item] for item in items)
    produce = in_context(next)
    with ThreadPoolExecutor(1) as producer:
        pending = producer.submit(produce, remaining, None)
        while item := pending.result():
            pending = producer.submit(produce, remaining, None)
            yield item[0]
