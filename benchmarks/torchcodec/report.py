"""The table of dense sampling beside TorchCodec."""

from __future__ import annotations

import sys
from dataclasses import asdict
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.console import OUT, PROGRESS, figures_table, print_json
from benchmarks.torchcodec.environment import torchcodec_python
from benchmarks.torchcodec.measure import SETTINGS, measure_clips, measure_keyframes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from rich.table import Table

    from benchmarks.torchcodec.measure import Choice, KeyframeRow, PeerRow

LEAST_RATIO = 1.5
_NOTE = (
    "Medians in milliseconds from a path to 16 frames, each loader in a process of its own, in turn; ours with "
    "all cores and with one thread, TorchCodec by seek mode and FFmpeg threads. Ratios are medians of pairs, with the "
    "setting that suits TorchCodec best. The difference is the mean of that between both loaders' RGB values, of 255; "
    "at the model's size, they scale with other filters."
)
_BOUND_NOTE = (
    "FFmpeg alone, that of PyAV, decodes the same packets from memory with all cores, and does nothing else: all "
    "pictures from a keyframe to a pick, as TorchCodec does, and those that ours decodes, which leaves out pictures "
    "that are neither picked nor referred to. The bound is the ratio of both in CPU time: the CPU ratio of two loaders "
    "that cost nothing beyond FFmpeg."
)

_KEYFRAME_NOTE = (
    "What users of vLLM chose between: the keyframes that the sampler keyframes takes, and 16 uniform frames by "
    "TorchCodec's approximate seek, with FFmpeg's own number of threads. Medians of rounds; bytes are those that the "
    "process reads of the file. The distance is the mean one from a uniform frame to the nearest keyframe taken."
)


def compare(clips: Iterable[Path], folder: Path, *, rounds: int, choice: Choice, as_json: bool) -> int:
    """Measure each clip; print a table or JSON. `folder` keeps TorchCodec's environment.

    Returns:
        1 if TorchCodec takes less than `LEAST_RATIO` times as long on a clip for uniform frames, or shows frames of
        other times; else 0.
    """
    with PROGRESS.status("Installing TorchCodec in an environment of its own; the first time takes minutes"):
        theirs = torchcodec_python(folder)
    with PROGRESS.status("Measuring; the first run makes the clips") as status:
        rows = []
        for row in measure_clips(clips, (sys.executable, theirs), rounds=rounds, choice=choice):
            rows.append(row)
            status.update(f"Measuring; {row.clip} is done")
    if as_json:
        print_json([_record(row) for row in rows])
    else:
        OUT.print(peer_table(rows, str(choice)))
        OUT.print(_NOTE)
        OUT.print(bound_table(rows))
        OUT.print(_BOUND_NOTE)
    least = 0 if choice.at_random else LEAST_RATIO
    return int(any(row.ratio < least or not row.are_times_equal for row in rows))


def peer_table(rows: Sequence[PeerRow], what: str) -> Table:
    """Return a table with one row per clip."""
    headings = ("clip", "ours", "1 thread", *map(str, SETTINGS), "ratio", "CPU ratio", "times", "difference")
    table = figures_table(f"{what}, ms", headings)
    for row in rows:
        table.add_row(
            row.clip,
            f"{row.ours_ms:,.1f}",
            f"{row.ours_alone_ms:,.1f}",
            *(f"{row.theirs_ms(setting):,.1f}" for setting in SETTINGS),
            f"{row.ratio:.2f}x",
            f"{row.cpu_ratio:.2f}x",
            "equal" if row.are_times_equal else "other",
            f"{row.mean_difference:.2f}" if row.mean_difference else "none",
        )
    return table


def bound_table(rows: Sequence[PeerRow]) -> Table:
    """Return a table of what FFmpeg alone takes, with one row per clip."""
    ratios = ("bound", "CPU ratio", "ours / FFmpeg")
    headings = ("clip", "pictures", "of which ours decodes", "all, ms", "ours, ms", *ratios)
    table = figures_table("FFmpeg alone, on the pictures of each", headings)
    for row in rows:
        table.add_row(
            row.clip,
            *(f"{pictures:,}" for pictures in row.pictures),
            f"{median(each.all_ms for each in row.bare):,.1f}",
            f"{median(each.needed_ms for each in row.bare):,.1f}",
            f"{row.bound:.2f}x",
            f"{row.cpu_ratio:.2f}x",
            f"{row.overhead:.2f}x",
        )
    return table


def compare_keyframes(clips: Iterable[Path], folder: Path, *, rounds: int, at_model_size: bool, as_json: bool) -> None:
    """Measure keyframes beside an approximate seek; print a table or JSON."""
    with PROGRESS.status("Installing TorchCodec in an environment of its own; the first time takes minutes"):
        theirs = torchcodec_python(folder)
    with PROGRESS.status("Measuring; the first run makes the clips"):
        rows = [*measure_keyframes(clips, (sys.executable, theirs), rounds=rounds, at_model_size=at_model_size)]
    if as_json:
        print_json([asdict(row) | {"distance_s": row.distance_s} for row in rows])
    else:
        OUT.print(keyframe_table(rows))
        OUT.print(_KEYFRAME_NOTE)


def keyframe_table(rows: Sequence[KeyframeRow]) -> Table:
    """Return a table of keyframes beside uniform frames by an approximate seek, with one row per clip."""
    sides = [f"{side}, {figure}" for figure in ("frames", "ms", "CPU ms", "bytes") for side in ("ours", "TorchCodec")]
    table = figures_table(
        "Keyframes, and TorchCodec's approximate seek", ("clip", "file, bytes", *sides, "distance, s")
    )
    for row in rows:
        loads = (row.ours, row.theirs)
        table.add_row(
            row.clip,
            f"{row.size_bytes:,}",
            *(f"{len({*each[0].times_s})}" for each in loads),
            *(f"{median(load.ms for load in each):,.1f}" for each in loads),
            *(f"{median(load.cpu_ms for load in each):,.1f}" for each in loads),
            *(f"{median(load.bytes_read for load in each):,.0f}" for each in loads),
            f"{row.distance_s:.2f}",
        )
    return table


def _record(row: PeerRow) -> dict[str, Any]:
    return {
        "clip": row.clip,
        "ours_ms": row.ours_ms,
        "ours_alone_ms": row.ours_alone_ms,
        "torchcodec_ms": {str(setting): row.theirs_ms(setting) for setting in SETTINGS},
        "ratio": row.ratio,
        "cpu_ratio": row.cpu_ratio,
        "bound": row.bound,
        "overhead": row.overhead,
        "pictures": row.pictures,
        "are_times_equal": row.are_times_equal,
        "mean_difference": row.mean_difference,
    }
