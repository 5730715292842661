"""Frames that the model sees with and without `drop_similar`."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.media.scenes import LENGTH_S, SCENES
from reelabel.extract import extract_local
from reelabel.limits import Limits
from reelabel.sampling.options import Sampling
from reelabel.sampling.similar import drop_similar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from benchmarks.media.scenes import Scene

_SAMPLING = Sampling(sampler="fps", fps=1, max_pixels=602_112, size_multiple_px=28)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimilarRow:
    """Result of one scene.

    Attributes:
        before: Frames at one per second.
        after: Frames that remain.
        drop_ms: Milliseconds of the comparison, without decoding.
    """

    scene: str
    is_static: bool
    before: int
    after: int
    drop_ms: float

    @property
    def factor(self) -> float:
        """Reduction: frames before per frame after."""
        return self.before / self.after


def measure_similar(
    folder: Path,
    *,
    threshold: float,
    scenes: Sequence[Scene] = SCENES,
    length_s: int = LENGTH_S,
) -> Iterator[SimilarRow]:
    """Sample each scene at one frame per second, and drop similar frames.

    Args:
        folder: Folder that keeps the rendered scenes.
        threshold: Similarity above which a frame is dropped.
        scenes: Scenes to measure.
        length_s: Length of each scene.
    """
    for scene in scenes:
        path = scene.make(folder, length_s=length_s)
        images = extract_local(path, sampling=_SAMPLING, limits=Limits()).images
        started = time.perf_counter()
        kept = drop_similar(images, threshold=threshold)
        drop_ms = (time.perf_counter() - started) * 1e3
        yield SimilarRow(
            scene=scene.name, is_static=scene.is_static, before=len(images), after=len(kept), drop_ms=drop_ms
        )


def overall_factor(rows: Sequence[SimilarRow], *, is_static: bool) -> float:
    """Return the reduction over all static, or all moving, scenes together."""
    chosen = [row for row in rows if row.is_static is is_static]
    return sum(row.before for row in chosen) / sum(row.after for row in chosen)
