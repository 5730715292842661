"""Compares our methods of scene detection with PySceneDetect, which reads the file itself, on known scene changes."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from importlib import import_module
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from benchmarks.cores import used_cpu_s
from benchmarks.embedding import tiny_embedder
from benchmarks.extraction.loaders import FileParts
from benchmarks.harness import Column, Table, Target, progress
from benchmarks.scenes.clips import HARD, made_set
from benchmarks.scenes.truth import NEAR_MS, REAL_CLIPS, Score, import_packages, score
from reelabel.errors import VideoError
from reelabel.options import Limits
from reelabel.pool.decode_pool import DecodePool
from reelabel.segment import WHOLE
from reelabel.sources.video_file import open_video_file
from tasks.description.chunks import cut_chunks, embed_chunks
from tasks.description.embeddings import Cuts
from tasks.description.scenes.change import SceneChange, SceneMethodError
from tasks.description.scenes.cuts import find_cuts
from tasks.description.scenes.detect import detect_scenes
from tasks.description.scenes.footage import Footage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from benchmarks.scenes.truth import Transition
    from tasks.description.chunks import EmbeddedChunk
    from tasks.embedding.video import VideoEmbedder

OURS = ("auto", "ema", "published")
LIBRARIES = {"PySceneDetect adaptive": "AdaptiveDetector", "PySceneDetect content": "ContentDetector"}
METHODS = (*OURS, *LIBRARIES)
GROUPS = ("real", "made")
# Of the made clips, within half a second; and of their cuts within 100 ms.
_LEAST_F1_HARD, _LEAST_F1_GRADUAL, _LEAST_F1_EXACT = 0.96, 0.90, 0.95
_MOST_TIME = 1 / 3
_TITLES = {"real": "real clips", "hard": "made hard cuts", "soft": "made gradual changes"}
_COLUMNS = (
    Column("method", "method"),
    Column("precision", "precision", ".3f"),
    Column("recall", "recall", ".3f"),
    Column("F1", "f1", ".3f"),
    Column("F1 within 0.5 s", "near_f1", ".3f"),
    Column("seconds", "seconds", ".2f"),
    Column("CPU s", "cpu_s", ".2f"),
    Column("MB read", lambda row: row["bytes_read"] / 1e6, ".1f"),
    Column("frames decoded", "frames", ","),
)


class SceneRow(NamedTuple):
    """One method on one clip.

    Attributes:
        group: `real`; or, of made clips, `hard` or `soft`.
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


def run(
    folder: Path, methods: Sequence[str], *, rounds: int, groups: Sequence[str]
) -> tuple[list[Table], list[Target]]:
    """Compare some methods, and PySceneDetect, on some groups of clips."""
    rows: list[SceneRow] = []
    with progress("Installing the libraries and the real clips") as show:
        packages = import_packages(folder)
        for row in _measure(folder, packages, (*methods, *LIBRARIES), rounds=rounds, groups=groups):
            rows.append(row)
            show(f"{row.method} on {row.clip} is done")
    tables = []
    for group, title in _TITLES.items():
        measured = [method for method in METHODS if any((r.group, r.method) == (group, method) for r in rows)]
        if measured:
            tables.append(Table(title, [pooled(rows, group, method) for method in measured], _COLUMNS))
    return tables, targets(rows)


def _measure(
    folder: Path, packages: Path, methods: Sequence[str], *, rounds: int, groups: Sequence[str]
) -> Iterator[SceneRow]:
    real = [("real", clip.name, packages / clip.path, clip.truth) for clip in REAL_CLIPS]
    clips: list[tuple[str, str, Path, tuple[Transition, ...]]] = real if "real" in groups else []
    if "made" in groups:
        clips += [("hard" if made.kind in HARD else "soft", made.name, *made.make(folder)) for made in made_set()]
    with DecodePool() as pool, tiny_embedder(pool, folder) as embedder:
        _run("auto", packages / REAL_CLIPS[0].path, pool, embedder)  # starts the process
        for group, name, path, truth in clips:
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
    )


def pooled(rows: Sequence[SceneRow], group: str, method: str) -> dict[str, Any]:
    """Add up what a method did on the clips of a group."""
    wanted = [row for row in rows if (row.group, row.method) == (group, method)]
    counts, near = (sum((getattr(row, name) for row in wanted), Score()) for name in ("score", "near"))
    return {
        "method": method,
        "precision": counts.precision,
        "recall": counts.recall,
        "f1": counts.f1,
        "near_f1": near.f1,
        "seconds": sum(row.seconds for row in wanted),
        "cpu_s": sum(row.cpu_s for row in wanted),
        "bytes_read": sum(row.bytes_read for row in wanted),
        "frames": sum(row.frames or 0 for row in wanted),
    }


def targets(rows: Sequence[SceneRow]) -> list[Target]:
    """Return what `auto` is to reach, of what was measured."""
    found: list[Target] = []
    measured, groups = {row.method for row in rows}, {row.group for row in rows}
    if "auto" not in measured:
        return found
    if "hard" in groups:
        hard, gradual = pooled(rows, "hard", "auto"), pooled(rows, "soft", "auto")
        found += [
            Target("F1 on made cuts, within 0.5 s", hard["near_f1"], least=_LEAST_F1_HARD),
            Target("F1 on made gradual changes, within 0.5 s", gradual["near_f1"], least=_LEAST_F1_GRADUAL),
            Target("F1 on made cuts, within 0.1 s", hard["f1"], least=_LEAST_F1_EXACT),
        ]
    theirs = [pooled(rows, "real", name) for name in LIBRARIES if name in measured]
    if theirs and "real" in groups:
        ours, best = pooled(rows, "real", "auto"), max(theirs, key=lambda each: (each["f1"], -each["seconds"]))
        name = best["method"]
        found += [
            Target(f"F1 on the real clips, of {name}", ours["f1"], least=best["f1"]),
            Target(f"share of the time of {name}", ours["seconds"] / best["seconds"], most=_MOST_TIME),
            Target(f"share of the processor time of {name}", ours["cpu_s"] / best["cpu_s"], most=_MOST_TIME),
        ]
    return found


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
