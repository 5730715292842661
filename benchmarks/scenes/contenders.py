"""The contenders: our methods, and PySceneDetect, which reads the file itself."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from benchmarks.cores import used_cpu_s
from benchmarks.extraction.loaders import FileParts
from reelabel.errors import VideoError
from reelabel.options import Limits
from reelabel.segment import WHOLE
from reelabel.sources.video_file import open_video_file
from tasks.description.chunks import cut_chunks, embed_chunks
from tasks.description.embeddings import Cuts
from tasks.description.scenes.change import SceneChange, SceneMethodError
from tasks.description.scenes.cuts import find_cuts
from tasks.description.scenes.detect import detect_scenes
from tasks.description.scenes.footage import Footage

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from reelabel.pool.decode_pool import DecodePool
    from tasks.description.chunks import EmbeddedChunk
    from tasks.embedding.video import VideoEmbedder

OURS = ("auto", "ema", "published")
LIBRARIES = {"PySceneDetect adaptive": "AdaptiveDetector", "PySceneDetect content": "ContentDetector"}


class Finding(NamedTuple):
    """What one method found in one clip, and its cost.

    Attributes:
        cpu_s: Seconds of processor time, of this process, its decoding processes and those that have ended.
        bytes_read: Bytes of the file that were read, if it lay on a server.
        frames: Frames that were decoded; None if unknown.
    """

    changes: tuple[SceneChange, ...]
    seconds: float
    cpu_s: float
    bytes_read: int
    frames: int | None


@dataclass(slots=True)
class _Clock:
    """Measures a call in seconds, and in those of processor time."""

    pids: Sequence[int] = ()
    seconds: float = 0.0
    cpu_s: float = 0.0

    def __enter__(self) -> Self:
        self.seconds, self.cpu_s = time.perf_counter(), self._used_s()
        return self

    def __exit__(self, *_raised: object) -> None:
        self.seconds, self.cpu_s = time.perf_counter() - self.seconds, self._used_s() - self.cpu_s

    def _used_s(self) -> float:
        used = os.times()
        return used.user + used.system + used.children_user + used.children_system + used_cpu_s(self.pids)


def run_ours(method: str, path: Path, pool: DecodePool, embedder: VideoEmbedder) -> Finding:
    """Run one of our methods on a file; a second time, in ranges, to count bytes.

    A description has its embeddings already, so that sampling and embedding the frames is not counted.
    """
    with open_video_file(path) as file:
        chunks = embed(path, embedder)
        footage = Footage(video=file, pool=pool, limits=Limits())
        with _Clock(pool.process_ids) as clock:
            found = detect_scenes(method, chunks, cuts=_cuts(method, footage))
    remote = Footage(video=FileParts(path), pool=pool, limits=Limits())
    _cuts(method, remote)
    return Finding(found.changes, clock.seconds, clock.cpu_s, remote.bytes_read, footage.frames_decoded)


def _cuts(method: str, footage: Footage) -> Cuts | None:
    if method != "auto":
        return None
    try:
        return find_cuts(footage)
    except (SceneMethodError, VideoError) as error:
        return Cuts(candidates=None, note=error.message)


def embed(path: Path, embedder: VideoEmbedder) -> tuple[EmbeddedChunk, ...]:
    """Embed a clip as a run does; a clip that was embedded before is not decoded again."""
    found = embedder.embed_segment(str(path), WHOLE).embeddings
    return embed_chunks(cut_chunks(found.duration_s, chunk_s=embedder.spec.seconds_per_chunk), found)


def run_library(name: str, path: Path) -> Finding:
    """Run PySceneDetect with its defaults, its own reader included."""
    library: Any = import_module("scenedetect")  # of the folder that `import_packages` has filled
    with _Clock() as clock:
        video = library.open_video(str(path))
        scenes = library.SceneManager()
        scenes.add_detector(getattr(library, LIBRARIES[name])())
        frames = scenes.detect_scenes(video)
        cuts = [start for start, _ in scenes.get_scene_list()[1:]]
    gap_ms = 1000 / float(video.frame_rate)
    changes = tuple(
        SceneChange(pts_ms=round(cut.seconds * 1000), score=1.0, since_ms=round(cut.seconds * 1000 - gap_ms))
        for cut in cuts
    )
    return Finding(changes, clock.seconds, clock.cpu_s, path.stat().st_size, frames)
