"""Making the next thing while the last one is used: two processors, or a server and we, then work at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_T = TypeVar("_T")


def one_ahead(items: Iterable[_T]) -> Iterator[_T]:
    """Give items in their order, each next one made meanwhile in a thread of its own.

    What making one raises is raised where it would have been given.
    """
    remaining = ([item] for item in items)
    with ThreadPoolExecutor(1) as maker:
        coming = maker.submit(next, remaining, None)
        while made := coming.result():
            coming = maker.submit(next, remaining, None)
            yield made[0]
