"""Extraction of frame files without a flow: as a contender, and as a part of one."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from benchmarks.pipeline.contender import Timing
from reelabel.cores import usable_cores
from reelabel.frames.cache import FrameCache
from reelabel.frames.extractor import FrameExtractor
from reelabel.limits import Limits
from reelabel.pool.decode_pool import DecodePool
from reelabel.sources.object_store import ObjectStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infra.settings import StoreSettings
    from reelabel.sampling.options import Sampling

_DECODE_TIMEOUT_S = 60
_DECODE_MIB = 4096


@dataclass(slots=True, kw_only=True)
class Extractor:
    """Writes the frame files of videos.

    Attributes:
        store: Settings of the store, where videos or frame files are on S3.
        root_uri: Parent of the folders of frame files, one per pass.
        processes: Decoding processes; None is one per core, as in a run.
    """

    sampling: Sampling
    store: StoreSettings
    root_uri: str
    processes: int | None = None
    _pool: Any = field(default=None, init=False)

    @property
    def width(self) -> int:
        """Videos extracted at once."""
        return self.processes or usable_cores()

    def load(self) -> None:
        """Start the decoding processes."""
        self._pool = DecodePool(processes=self.width, timeout_s=_DECODE_TIMEOUT_S, memory_mib=_DECODE_MIB, threads=1)

    def preparer(self, number: int) -> FrameExtractor:
        """Return what extracts the videos of one pass, with an empty cache."""
        objects = ObjectStore(self.store)
        return FrameExtractor(
            objects=objects,
            cache=FrameCache(objects, f"{self.root_uri}/{number}"),
            pool=self._pool,
            sampling=self.sampling,
            limits=Limits(),
        )

    def close(self) -> None:
        """Stop the decoding processes."""
        if self._pool is not None:
            self._pool.close()


@dataclass(slots=True, kw_only=True)
class ExtractionOnly:
    """Contender: extraction without an engine; each video counts as a job."""

    extractor: Extractor
    videos: Sequence[str] = field(repr=False)

    def load(self) -> None:
        """Start the decoding processes."""
        self.extractor.load()

    def run(self, number: int) -> Timing:
        """Extract every video; sizes and versions are looked up in bulk, as in a run."""
        preparer = self.extractor.preparer(number)
        began_s = time.time()
        known = preparer.stat_many(self.videos)
        with ThreadPoolExecutor(self.extractor.width) as threads:
            prepared = list(threads.map(lambda video: preparer.prepare(video, known.get(video)), self.videos))
        return Timing(jobs=len(prepared), began_s=began_s, ended_s=time.time())

    def close(self) -> None:
        """Stop the decoding processes."""
        self.extractor.close()
