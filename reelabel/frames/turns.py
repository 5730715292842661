"""Turns at a video: threads that want the same frames wait for the first one, instead of decoding them again."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from copy import copy
from typing import TYPE_CHECKING

from reelabel.errors import VideoError

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator


class Turns:
    """A lock for each key in use, and the errors of the videos that failed last. Thread-safe."""

    def __init__(self, *, keep_faults: int = 0) -> None:
        """Start with no key.

        Args:
            keep_faults: Number of errors kept; who asks for such a video gets the error without another attempt.
        """
        self._keep_faults = keep_faults
        self._faults: dict[Hashable, VideoError] = {}
        self._locks: dict[Hashable, tuple[threading.Lock, int]] = {}
        self._guard = threading.Lock()

    @contextmanager
    def at(self, key: Hashable) -> Iterator[None]:
        """Wait until no other thread holds the key, and hold it while the body runs.

        Raises:
            VideoError: The body's own, or a kept one.
        """
        with self._locked(key):
            if fault := self._faults.get(key):
                raise copy(fault)  # raised again, it would hold ever more frames of the stack
            try:
                yield
            except VideoError as error:
                self._keep(key, copy(error))
                raise

    @contextmanager
    def _locked(self, key: Hashable) -> Iterator[None]:
        with self._guard:
            lock, users = self._locks.get(key, (threading.Lock(), 0))
            self._locks[key] = lock, users + 1
        try:
            with lock:
                yield
        finally:
            with self._guard:
                _, users = self._locks.pop(key)
                if users > 1:
                    self._locks[key] = lock, users - 1

    def _keep(self, key: Hashable, fault: VideoError) -> None:
        with self._guard:
            self._faults[key] = fault
            if len(self._faults) > self._keep_faults:
                del self._faults[next(iter(self._faults))]
