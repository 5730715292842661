"""The rendered items of the live sessions, in the engine's process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reelabel_engine.errors import InferenceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from reelabel_engine.live.renderer import RenderedItem
    from reelabel_engine.protocol import Rejected


class ItemCache:
    """The rendered items of each session; None in place of one that is being rendered."""

    def __init__(self) -> None:
        self._items: dict[str, dict[str, RenderedItem | Rejected | None]] = {}

    def expect(self, session: str, hashes: Iterable[str]) -> None:
        self._items.setdefault(session, {}).update(dict.fromkeys(hashes))

    def put(self, session: str, items: dict[str, RenderedItem | Rejected]) -> None:
        """Keep rendered items, but for those that were dropped meanwhile."""
        kept = self._items.get(session, {})
        kept.update((name, item) for name, item in items.items() if name in kept)

    def drop(self, session: str, hashes: Iterable[str] | None) -> None:
        if hashes is None:
            self._items.pop(session, None)
        for name in hashes or ():
            self._items.get(session, {}).pop(name, None)

    def find(self, session: str, hashes: Sequence[str]) -> list[RenderedItem | Rejected] | None:
        """Return items in order; None while one of them is being rendered.

        Raises:
            InferenceError: One was dropped.
        """
        kept = self._items.get(session, {})
        try:
            found = [kept[name] for name in hashes]
        except KeyError:
            raise InferenceError("The session's frames were dropped before it was answered.") from None
        present = [item for item in found if item is not None]
        return present if len(present) == len(found) else None
