"""From videos to frame files, alone and before the engine: what `tasks.frames` does without a flow."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from benchmarks.pipeline.timing import Timing
from infra.objects import ObjectStore
from tasks.frames.cache import FrameCache
from tasks.frames.prepare import Preparer
from tasks.video.limits import Limits
from tasks.video.pool import DecodePool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infra.settings import StoreSettings
    from tasks.domain import Sampling

_DECODE_TIMEOUT_S = 60
_DECODE_MIB = 4096


@dataclass(slots=True, kw_only=True)
class Extraction:
    """Frame files of videos, written below a root, with as many decoding processes as there are cores.

    Attributes:
        store: How S3 is reached, where videos or frame files are there.
        root_uri: Frame files of each pass stand in a folder of their own below it.
        processes: Decoding processes; None is one per core, as in a run.
    """

    sampling: Sampling
    store: StoreSettings
    root_uri: str
    processes: int | None = None
    _pool: Any = field(default=None, init=False)

    @property
    def width(self) -> int:
        """Videos on their way at once."""
        return self.processes or os.cpu_count() or 1

    def load(self) -> None:
        """Start the decoding processes."""
        self._pool = DecodePool(processes=self.width, timeout_s=_DECODE_TIMEOUT_S, memory_mib=_DECODE_MIB)

    def preparer(self, number: int) -> Preparer:
        """Give what a pass prepares videos with; its cache is empty at first."""
        objects = ObjectStore(self.store)
        return Preparer(
            objects=objects,
            cache=FrameCache(objects, f"{self.root_uri}/{number}"),
            pool=self._pool,
            sampling=self.sampling,
            limits=Limits(),
        )

    def close(self) -> None:
        """End the decoding processes."""
        if self._pool is not None:
            self._pool.close()


@dataclass(slots=True, kw_only=True)
class Extracting:
    """Extraction with nobody asking for its frames; a job is a video here."""

    extraction: Extraction
    videos: Sequence[str] = field(repr=False)

    def load(self) -> None:
        """Start the decoding processes."""
        self.extraction.load()

    def run(self, number: int) -> Timing:
        """Prepare every video, whose sizes and versions are looked up by few requests, as a run does it."""
        preparer = self.extraction.preparer(number)
        began_s = time.time()
        known = preparer.look_around(self.videos)
        with ThreadPoolExecutor(self.extraction.width) as threads:
            prepared = list(threads.map(lambda video: preparer.prepare(video, known.get(video)), self.videos))
        return Timing(jobs=len(prepared), began_s=began_s, ended_s=time.time())

    def close(self) -> None:
        """End the decoding processes."""
        self.extraction.close()
