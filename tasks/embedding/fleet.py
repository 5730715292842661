"""Towers on several GPUs, behind the interface of one."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from infra.errors import ModelError
from tasks.model.protocol import Lifetime

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    import numpy.typing as npt

    from tasks.embedding.backend import EmbeddingBackend
    from tasks.embedding.protocol import TowersInfo


class TowersFleet(Lifetime):
    """Towers of one model, each in its own process; a context manager that shuts them all down.

    Each request goes whole to the least busy towers. Those that cannot be loaded again are no longer used.
    """

    def __init__(self, members: Sequence[EmbeddingBackend]) -> None:
        """Store the towers, at least one; none is started yet."""
        self._members = list(members)
        self._busy = dict.fromkeys(range(len(members)), 0)
        self._faults: dict[int, ModelError] = {}
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start loading all towers."""
        for member in self._members:
            member.start()

    def wait_ready(self) -> TowersInfo:
        """Wait until all towers are loaded, and describe them as one.

        Raises:
            ModelError: The model cannot be loaded, or not within the timeout.
        """
        infos = [member.wait_ready() for member in self._members]
        return replace(infos[0], gpus=sum(info.gpus for info in infos), start_ms=max(info.start_ms for info in infos))

    def embed_frames(self, videos: Sequence[npt.NDArray[np.uint8]]) -> npt.NDArray[np.float32]:
        """Embed frames by the least busy towers; as `TowersProcess.embed_frames`. Thread-safe."""
        while True:
            with self._least_busy() as (number, member):
                try:
                    return member.embed_frames(videos)
                except ModelError as error:
                    self._faults[number] = error

    def embed_texts(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Embed texts by the least busy towers; as `TowersProcess.embed_texts`. Thread-safe."""
        with self._least_busy() as (_, member):
            return member.embed_texts(texts)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Count tokens by the least busy towers."""
        with self._least_busy() as (_, member):
            return member.count_tokens(texts)

    def close(self) -> None:
        """End all processes; idempotent."""
        for member in self._members:
            member.close()

    @contextmanager
    def _least_busy(self) -> Iterator[tuple[int, EmbeddingBackend]]:
        with self._lock:
            usable = [number for number in self._busy if number not in self._faults]
            if not usable:
                raise next(iter(self._faults.values()))
            number = min(usable, key=self._busy.__getitem__)
            self._busy[number] += 1
        try:
            yield number, self._members[number]
        finally:
            with self._lock:
                self._busy[number] -= 1
