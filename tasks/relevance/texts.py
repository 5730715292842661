"""What is asked about videos, as vectors; many jobs ask the same, so they are kept in memory."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from tasks.embedding.backend import EmbeddingBackend

_KEPT = 10_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EmbeddedTexts:
    """Texts as vectors.

    Attributes:
        vectors: One each; shape (K, D).
        note: That they are cut, as a clause; empty if they are not.
    """

    vectors: npt.NDArray[np.float32] = field(repr=False)
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextEmbedder:
    """Embeds texts. Thread-safe.

    Attributes:
        towers: What embeds them.
        max_tokens: Tokens of a text that the towers read; the rest is cut off.
    """

    towers: EmbeddingBackend
    max_tokens: int
    _known: OrderedDict[tuple[str, ...], EmbeddedTexts] = field(default_factory=OrderedDict, init=False, repr=False)
    _lock: Lock = field(default_factory=Lock, init=False, repr=False)

    def embed(self, texts: tuple[str, ...]) -> EmbeddedTexts:
        """Embed texts, at least one, or return what they were embedded to.

        Raises:
            EngineLostError: The towers die.
            ModelError: They cannot be loaded again.
        """
        with self._lock:
            if known := self._known.get(texts):
                self._known.move_to_end(texts)
                return known
        found = EmbeddedTexts(vectors=self.towers.embed_texts(texts), note=self._note(texts))
        with self._lock:
            self._known[texts] = found
            if len(self._known) > _KEPT:
                self._known.popitem(last=False)
        return found

    def _note(self, texts: tuple[str, ...]) -> str:
        longest = max(self.towers.count_tokens(texts))
        if longest <= self.max_tokens:
            return ""
        return f"the question has {longest} tokens, of which the image-text model reads the first {self.max_tokens}"
