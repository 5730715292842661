"""What is compared: our methods, and PySceneDetect reading the file by itself."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from reelabel.limits import Limits
from reelabel.optional import require
from reelabel.sources.video_file import open_video_file
from tasks.description.scenes.change import EmbeddedChunk, Evidence, SceneChange, SceneMethodError
from tasks.description.scenes.footage import PooledFootage
from tasks.description.scenes.registry import detect_scenes

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

    from reelabel.pool.decode_pool import DecodePool

CHUNK_MS, FRAMES_PER_CHUNK = 10_000, 16
OURS = ("auto", "index", "ema", "published", "content", "transnetv2")
EMBEDDED = frozenset({"auto", "ema", "published"})
LIBRARIES = {"PySceneDetect adaptive": "AdaptiveDetector", "PySceneDetect content": "ContentDetector"}
_BINS = 4  # a channel


class Finding(NamedTuple):
    """What one method said of one clip, and its cost.

    Attributes:
        bytes_read: Bytes of the file that were read, if it lay on a server.
        frames: Frames that were decoded; None if unknown.
    """

    changes: tuple[SceneChange, ...]
    seconds: float
    bytes_read: int
    frames: int | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class FileRanges:
    """A local file that is read in ranges, as a video on a server is."""

    path: Path
    max_wait_s: float = 60.0

    @property
    def size_bytes(self) -> int:
        """Its length."""
        return self.path.stat().st_size

    def read(self, start: int, size: int) -> bytes:
        """Read a range."""
        with self.path.open("rb") as file:
            file.seek(start)
            return file.read(size)


def run_ours(method: str, path: Path, pool: DecodePool) -> Finding:
    """Run one of our methods on a file; a second time, in ranges, to count bytes.

    A description has its embeddings already, so that sampling and embedding the frames is not counted.
    """
    with open_video_file(path) as file:
        chunks = embed(PooledFootage(video=file, pool=pool, limits=Limits())) if method in EMBEDDED else ()
        footage = PooledFootage(video=file, pool=pool, limits=Limits())
        started = time.perf_counter()
        found = detect_scenes(method, Evidence(footage=footage, chunks=chunks))
        seconds = time.perf_counter() - started
    remote = PooledFootage(video=FileRanges(path), pool=pool, limits=Limits())
    bytes_read = path.stat().st_size
    if method not in {"content", "transnetv2"}:
        with suppress(SceneMethodError):  # a run then downloads the file
            detect_scenes(method, Evidence(footage=remote, chunks=chunks))
            bytes_read = remote.bytes_read
    return Finding(found.changes, seconds, bytes_read, footage.frames_decoded, found.note)


def embed(footage: PooledFootage) -> tuple[EmbeddedChunk, ...]:
    """Sample each chunk as a run does; the vectors are histograms of colour, which stand in for a model's."""
    times = footage.packets().times_ms - footage.packets().times_ms[0]
    starts = range(0, int(times[-1]) + 1, CHUNK_MS)
    wanted = np.concatenate([start + np.arange(FRAMES_PER_CHUNK) * CHUNK_MS / FRAMES_PER_CHUNK for start in starts])
    nearest = np.unique(np.searchsorted(times, wanted[wanted <= times[-1]]))
    got = footage.thumbnails(tuple((float(each), float(each)) for each in times[nearest] / 1000))
    since = got.times_ms - int(footage.packets().times_ms[0])
    chunks = []
    for start in starts:
        inside = (since >= start) & (since < start + CHUNK_MS)
        duration_ms = min(CHUNK_MS, int(times[-1]) - start)
        vectors = histograms(got.images[inside])
        chunks.append(
            EmbeddedChunk(start_ms=start, duration_ms=duration_ms, vectors=vectors, pts_ms=got.times_ms[inside])
        )
    return tuple(chunks)


def histograms(images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Return the square roots of colour histograms, whose length is 1; shape (N, 64), float32."""
    codes = (images // (256 // _BINS)).astype(np.int64) @ np.array([_BINS * _BINS, _BINS, 1])
    counts = np.array([np.bincount(each.ravel(), minlength=_BINS**3) for each in codes], np.float32)
    counts = counts.reshape(-1, _BINS**3)
    found: npt.NDArray[np.float32] = np.sqrt(counts / np.maximum(1, counts.sum(axis=1, keepdims=True)))
    return found


def run_library(name: str, path: Path) -> Finding:
    """Run PySceneDetect with its defaults, its own reader included."""
    library: Any = require("scenedetect", extra="scenes", purpose="The bench of scenes")
    started = time.perf_counter()
    video = library.open_video(str(path))
    scenes = library.SceneManager()
    scenes.add_detector(getattr(library, LIBRARIES[name])())
    frames = scenes.detect_scenes(video)
    cuts = [start for start, _ in scenes.get_scene_list()[1:]]
    seconds = time.perf_counter() - started
    gap_ms = 1000 / float(video.frame_rate)
    changes = tuple(
        SceneChange(pts_ms=round(cut.seconds * 1000), score=1.0, since_ms=round(cut.seconds * 1000 - gap_ms))
        for cut in cuts
    )
    return Finding(changes, seconds, path.stat().st_size, frames)
