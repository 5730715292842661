"""Towers on several GPUs, behind the interface of one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tasks.embedding.backend import EmbeddingBackend
from tasks.model.fleet import Fleet

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

    from reelabel_engine.protocol import TowersInfo


class TowersFleet(Fleet[EmbeddingBackend]):
    """Towers of one model, each in its own process; for what its methods take and raise, see `TowersProcess`."""

    def wait_ready(self) -> TowersInfo:
        """Wait until all towers are loaded, and describe them as one."""
        infos = [member.wait_ready() for member in self._members]
        return replace(infos[0], gpus=sum(info.gpus for info in infos), start_ms=max(info.start_ms for info in infos))

    def embed_frames(self, videos: Sequence[npt.NDArray[np.uint8]]) -> npt.NDArray[np.float32]:
        """Embed frames by the least busy towers."""
        return self._ask(lambda towers: towers.embed_frames(videos))

    def embed_texts(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Embed texts by the least busy towers."""
        return self._ask(lambda towers: towers.embed_texts(texts))

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Count tokens by the least busy towers."""
        return self._ask(lambda towers: towers.count_tokens(texts))
