"""The tables of the bench of scenes, and its targets."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from benchmarks.console import OUT, PROGRESS, figures_table, print_json
from benchmarks.scenes.contenders import LIBRARIES
from benchmarks.scenes.measure import METHODS, measure, pooled
from benchmarks.scenes.real import import_packages

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.table import Table

    from benchmarks.scenes.measure import SceneRow

LEAST_F1 = 0.95
# Of the made set, within half a second; and of its cuts within 100 ms.
LEAST_F1_HARD, LEAST_F1_GRADUAL, LEAST_F1_EXACT = 0.96, 0.90, 0.95
MOST_TIME = 1 / 3
_THEIRS = tuple(LIBRARIES)
_CUTS = ("cuts", "motion")
_NOTE = (
    "Seconds of each method from the file to its changes, decoding included; CPU s are those of all processors. Bytes "
    "are those that are read of a file on a server. auto, ema and published are given embeddings, as a description has "
    "them already: of 16 frames in 10 s, by the tiny model that ships, which has seen nothing but moving shapes. "
    "A change is right if it comes within 100 ms of a known one; each known one counts once, so repeats are wrong."
)


def run(
    folder: Path,
    methods: Sequence[str],
    *,
    rounds: int,
    groups: Sequence[str],
    sizes: Sequence[str],
    as_json: bool,
) -> int:
    """Measure; print tables or JSON; return 1 if a target is missed, else 0."""
    with PROGRESS.status("Installing the libraries and the real clips"):
        packages = import_packages(folder)
    rows: list[SceneRow] = []
    with PROGRESS.status("Measuring; the first run makes the clips") as status:
        for row in measure(folder, packages, methods, rounds=rounds, groups=groups, sizes=sizes):
            rows.append(row)
            status.update(f"Measuring; {row.method} on {row.clip} is done")
    verdicts = targets(rows)
    if as_json:
        print_json({"rows": [_record(row) for row in rows], "targets": verdicts})
    else:
        for kinds, title in (
            (_CUTS, "made cuts"),
            (("gradual",), "made dissolves and fades"),
            (("real",), "real clips"),
            (("hard",), "the made set: hard cuts"),
            (("soft",), "the made set: gradual changes"),
        ):
            if not any(row.group in kinds for row in rows):
                continue
            OUT.print(scene_table(rows, kinds, title, [name for name in METHODS if name in methods]))
        OUT.print(_NOTE)
        for sentence, is_met in verdicts.items():
            OUT.print(f"{'met' if is_met else 'MISSED'}: {sentence}")
    return int(not all(verdicts.values()))


def targets(rows: Sequence[SceneRow]) -> dict[str, bool]:
    """Return what is to be reached, with figures, and whether it is; only what was measured."""
    verdicts: dict[str, bool] = {}
    measured = {row.method for row in rows}
    if "auto" not in measured:
        return verdicts
    if any(row.group in _CUTS for row in rows):
        made = pooled(rows, _CUTS, "auto").score
        verdicts[f"auto has an F1 of {made.f1:.3f} on made cuts, at least {LEAST_F1}"] = made.f1 >= LEAST_F1
    if any(row.group == "hard" for row in rows):
        hard, gradual = pooled(rows, ("hard",), "auto"), pooled(rows, ("soft",), "auto")
        for name, of, least in (
            ("cuts of the made set, within 0.5 s", hard.near, LEAST_F1_HARD),
            ("gradual changes of the made set, within 0.5 s", gradual.near, LEAST_F1_GRADUAL),
            ("cuts of the made set, within 0.1 s", hard.score, LEAST_F1_EXACT),
        ):
            verdicts[f"auto has an F1 of {of.f1:.3f} on {name}, at least {least:.2f}"] = of.f1 >= least
    theirs = {name: pooled(rows, ("real",), name) for name in _THEIRS if name in measured}
    if theirs and any(row.group == "real" for row in rows):
        ours = pooled(rows, ("real",), "auto")
        best = max(theirs, key=lambda name: (theirs[name].score.f1, -theirs[name].seconds))
        f1, most = theirs[best].score.f1, theirs[best]
        reached = f"auto has an F1 of {ours.score.f1:.3f} on the real clips, at least {f1:.3f} ({best})"
        verdicts[reached] = ours.score.f1 >= f1
        for unit, share in (("time", ours.seconds / most.seconds), ("processor time", ours.cpu_s / most.cpu_s)):
            verdicts[f"auto takes {share:.0%} of the {unit} of {best}, at most a third"] = share <= MOST_TIME
    return verdicts


def scene_table(rows: Sequence[SceneRow], groups: Sequence[str], title: str, methods: Sequence[str]) -> Table:
    """Return a table with one row per method, over the clips of some groups."""
    headings = (
        "method",
        "precision",
        "recall",
        "F1",
        "F1 within 0.5 s",
        "seconds",
        "CPU s",
        "MB read",
        "frames decoded",
    )
    table = figures_table(title, headings)
    for method in methods:
        wanted = [row for row in rows if row.group in groups and row.method == method]
        if not wanted:
            continue
        counts, seconds, cpu_s, near = pooled(rows, groups, method)
        table.add_row(
            method,
            f"{counts.precision:.3f}",
            f"{counts.recall:.3f}",
            f"{counts.f1:.3f}",
            f"{near.f1:.3f}",
            f"{seconds:.2f}",
            f"{cpu_s:.2f}",
            f"{sum(row.bytes_read for row in wanted) / 1e6:.1f}",
            f"{sum(row.frames or 0 for row in wanted):,}",
        )
    return table


def _record(row: SceneRow) -> dict[str, Any]:
    figures = {"precision": row.score.precision, "recall": row.score.recall, "f1": row.score.f1}
    return asdict(row) | figures
