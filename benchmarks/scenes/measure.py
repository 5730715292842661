"""Every method on every clip."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.describe.embedder import tiny_embedder
from benchmarks.scenes.clips import HARD, made_set, scene_clips
from benchmarks.scenes.contenders import LIBRARIES, OURS, run_library, run_ours
from benchmarks.scenes.real import REAL_CLIPS
from benchmarks.scenes.truth import NEAR_MS, Score, score
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
        group: The kind of the clip: `cuts`, `motion`, `gradual` or `real`; of the made set, `hard` or `soft`.
        near: The score within half a second.
        seconds: Median over the rounds.
        cpu_s: Seconds of processor time, of all threads and processes; median over the rounds.
    """

    group: str
    clip: str
    method: str
    score: Score
    near: Score
    seconds: float
    cpu_s: float
    bytes_read: int
    frames: int | None
    note: str


def measure(
    folder: Path, packages: Path, methods: Sequence[str], *, rounds: int, groups: Sequence[str], sizes: Sequence[str]
) -> Iterator[SceneRow]:
    """Measure some methods on all clips.

    Args:
        folder: Folder that keeps the made clips.
        packages: Folder of the real ones.
        methods: Names out of `METHODS`.
        rounds: Times that each method runs on each clip.
        groups: Which kinds of clips: `real`, `cuts`, `motion`, `gradual`, `set`.
        sizes: Which sizes of the made clips: `small`, `large`.
    """
    clips: list[tuple[str, str, Path, tuple[Transition, ...]]] = [
        ("real", clip.name, packages / clip.path, clip.truth) for clip in REAL_CLIPS
    ]
    clips += [(made.kind, made.name, *made.make(folder)) for made in scene_clips() if made.size in sizes]
    if "set" in groups:
        forty = [("hard" if made.kind in HARD else "soft", made.name, *made.make(folder)) for made in made_set()]
        clips, groups = [*clips, *forty], [*groups, "hard", "soft"]
    with DecodePool() as pool, tiny_embedder(pool, folder) as embedder:
        _run("auto", clips[0][2], pool, embedder)  # starts the process
        for group, name, path, truth in (clip for clip in clips if clip[0] in groups):
            found: dict[str, list[Finding]] = {method: [] for method in methods}
            for _ in range(rounds):  # the methods take turns, so that other load falls on all of them
                for method in methods:
                    found[method].append(_run(method, path, pool, embedder))
            yield from (_row(group, name, method, found[method], truth) for method in methods)


def _run(method: str, path: Path, pool: DecodePool, embedder: VideoEmbedder) -> Finding:
    return run_library(method, path) if method in LIBRARIES else run_ours(method, path, pool, embedder)


def _row(group: str, clip: str, method: str, found: Sequence[Finding], truth: tuple[Transition, ...]) -> SceneRow:
    first = found[0]
    return SceneRow(
        group=group,
        clip=clip,
        method=method,
        score=score(first.changes, truth),
        near=score(first.changes, truth, tolerance_ms=NEAR_MS),
        seconds=median(each.seconds for each in found),
        cpu_s=median(each.cpu_s for each in found),
        bytes_read=first.bytes_read,
        frames=first.frames,
        note=first.note,
    )


class Pooled(NamedTuple):
    """What a method did on several clips: its counts, its seconds, and those of processor time."""

    score: Score
    seconds: float
    cpu_s: float
    near: Score


def pooled(rows: Sequence[SceneRow], groups: Sequence[str], method: str) -> Pooled:
    """Add up what a method did on the clips of some groups."""
    wanted = [row for row in rows if row.group in groups and row.method == method]
    counts = sum((row.score for row in wanted), Score())
    near = sum((row.near for row in wanted), Score())
    return Pooled(counts, sum(row.seconds for row in wanted), sum(row.cpu_s for row in wanted), near)
