"""Compares methods of scene detection on clips with known scene changes."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.embedding import tiny_embedder
from benchmarks.harness import Column, Table, Target, progress
from benchmarks.scenes.clips import HARD, made_set, scene_clips
from benchmarks.scenes.contenders import LIBRARIES, OURS, run_library, run_ours
from benchmarks.scenes.real import REAL_CLIPS, import_packages
from benchmarks.scenes.truth import NEAR_MS, Score, score
from reelabel.pool.decode_pool import DecodePool

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from benchmarks.scenes.contenders import Finding
    from benchmarks.scenes.truth import Transition
    from tasks.embedding.video import VideoEmbedder

METHODS = (*OURS, *LIBRARIES)
GROUPS = ("real", "cuts", "motion", "gradual", "set")
_LEAST_F1 = 0.95
# Of the made set, within half a second; and of its cuts within 100 ms.
_LEAST_F1_HARD, _LEAST_F1_GRADUAL, _LEAST_F1_EXACT = 0.96, 0.90, 0.95
_MOST_TIME = 1 / 3
_CUTS = ("cuts", "motion")
_TITLES = {
    _CUTS: "made cuts",
    ("gradual",): "made dissolves and fades",
    ("real",): "real clips",
    ("hard",): "the made set: hard cuts",
    ("soft",): "the made set: gradual changes",
}
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
_NOTE = (
    "Seconds of each method from the file to its changes, decoding included; CPU s are those of all processors. Bytes "
    "are those that are read of a file on a server. auto, ema and published are given embeddings, as a description has "
    "them already: of 16 frames in 10 s, by the tiny model that ships, which has seen nothing but moving shapes. "
    "A change is right if it comes within 100 ms of a known one; each known one counts once, so repeats are wrong."
)


class SceneRow(NamedTuple):
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
    note: str = ""


def run(
    folder: Path, methods: Sequence[str], *, rounds: int, groups: Sequence[str], sizes: Sequence[str]
) -> tuple[list[Table], list[Target]]:
    """Compare some methods, and PySceneDetect, on some groups of clips; `sizes` are those of the made ones."""
    rows: list[SceneRow] = []
    with progress("Installing the libraries and the real clips") as show:
        packages = import_packages(folder)
        for row in _measure(folder, packages, (*methods, *LIBRARIES), rounds=rounds, groups=groups, sizes=sizes):
            rows.append(row)
            show(f"{row.method} on {row.clip} is done")
    tables = []
    for kinds, title in _TITLES.items():
        measured = [method for method in METHODS if any(r.group in kinds and r.method == method for r in rows)]
        if measured:
            tables.append(Table(title, [pooled(rows, kinds, method) for method in measured], _COLUMNS))
    tables[-1] = tables[-1]._replace(note=_NOTE)
    return tables, targets(rows)


def _measure(
    folder: Path, packages: Path, methods: Sequence[str], *, rounds: int, groups: Sequence[str], sizes: Sequence[str]
) -> Iterator[SceneRow]:
    real = [("real", clip.name, packages / clip.path, clip.truth) for clip in REAL_CLIPS]
    clips: list[tuple[str, str, Path, tuple[Transition, ...]]] = real if "real" in groups else []
    wanted = [made for made in scene_clips() if made.kind in groups and made.size in sizes]
    clips += [(made.kind, made.name, *made.make(folder)) for made in wanted]
    if "set" in groups:
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
        note=first.note,
    )


def pooled(rows: Sequence[SceneRow], groups: Sequence[str], method: str) -> dict[str, Any]:
    """Add up what a method did on the clips of some groups."""
    wanted = [row for row in rows if row.group in groups and row.method == method]
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
    if groups & {*_CUTS}:
        found.append(Target("F1 on made cuts", pooled(rows, _CUTS, "auto")["f1"], least=_LEAST_F1))
    if "hard" in groups:
        hard, gradual = pooled(rows, ("hard",), "auto"), pooled(rows, ("soft",), "auto")
        found += [
            Target("F1 on cuts of the made set, within 0.5 s", hard["near_f1"], least=_LEAST_F1_HARD),
            Target("F1 on its gradual changes, within 0.5 s", gradual["near_f1"], least=_LEAST_F1_GRADUAL),
            Target("F1 on its cuts, within 0.1 s", hard["f1"], least=_LEAST_F1_EXACT),
        ]
    theirs = [pooled(rows, ("real",), name) for name in LIBRARIES if name in measured]
    if theirs and "real" in groups:
        ours, best = pooled(rows, ("real",), "auto"), max(theirs, key=lambda each: (each["f1"], -each["seconds"]))
        name = best["method"]
        found += [
            Target(f"F1 on the real clips, of {name}", ours["f1"], least=best["f1"]),
            Target(f"share of the time of {name}", ours["seconds"] / best["seconds"], most=_MOST_TIME),
            Target(f"share of the processor time of {name}", ours["cpu_s"] / best["cpu_s"], most=_MOST_TIME),
        ]
    return found
