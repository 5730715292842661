"""Every method on every clip."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.describe.embedder import tiny_embedder
from benchmarks.scenes.clips import scene_clips
from benchmarks.scenes.contenders import LIBRARIES, OURS, run_library, run_ours
from benchmarks.scenes.real import REAL_CLIPS
from benchmarks.scenes.truth import Score, score
from reelabel.pool.decode_pool import DecodePool

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from benchmarks.scenes.contenders import Finding
    from benchmarks.scenes.truth import Transition
    from tasks.embedding.video import VideoEmbedder

METHODS = (*OURS, *LIBRARIES)


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneRow:
    """One method on one clip.

    Attributes:
        group: The kind of the clip: `cuts`, `motion`, `gradual` or `real`.
        seconds: Median over the rounds.
    """

    group: str
    clip: str
    method: str
    score: Score
    seconds: float
    bytes_read: int
    frames: int | None
    note: str


def measure(
    folder: Path, packages: Path, methods: Sequence[str], *, rounds: int, sizes: Sequence[str]
) -> Iterator[SceneRow]:
    """Measure some methods on all clips.

    Args:
        folder: Folder that keeps the made clips.
        packages: Folder of the real ones.
        methods: Names out of `METHODS`.
        rounds: Times that each method runs on each clip.
        sizes: Which sizes of the made clips: `small`, `large`.
    """
    clips: list[tuple[str, str, Path, tuple[Transition, ...]]] = [
        ("real", clip.name, packages / clip.path, clip.truth) for clip in REAL_CLIPS
    ]
    clips += [(made.kind, made.name, *made.make(folder)) for made in scene_clips() if made.size in sizes]
    with DecodePool() as pool, tiny_embedder(pool, folder) as embedder:
        _run("index", clips[0][2], pool, embedder)  # starts the process
        for group, name, path, truth in clips:
            for method in methods:
                yield _row(group, name, method, [_run(method, path, pool, embedder) for _ in range(rounds)], truth)


def _run(method: str, path: Path, pool: DecodePool, embedder: VideoEmbedder) -> Finding:
    return run_library(method, path) if method in LIBRARIES else run_ours(method, path, pool, embedder)


def _row(group: str, clip: str, method: str, found: Sequence[Finding], truth: tuple[Transition, ...]) -> SceneRow:
    first = found[0]
    return SceneRow(
        group=group,
        clip=clip,
        method=method,
        score=score(first.changes, truth),
        seconds=median(each.seconds for each in found),
        bytes_read=first.bytes_read,
        frames=first.frames,
        note=first.note,
    )


def pooled(rows: Sequence[SceneRow], groups: Sequence[str], method: str) -> tuple[Score, float]:
    """Add up what a method did on the clips of some groups: its counts and its seconds."""
    wanted = [row for row in rows if row.group in groups and row.method == method]
    return sum((row.score for row in wanted), Score()), sum(row.seconds for row in wanted)
