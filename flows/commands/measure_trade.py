"""`reelabel bench trade`."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from rich.console import Console

from benchmarks.trade.clips import FIT_SEED_FURTHER, MANIFEST_NAME, fit_clips, kept_trade, make_trade
from benchmarks.trade.measure import measure
from benchmarks.trade.picture import draw
from benchmarks.trade.tables import accuracy_table, cost_table, curve_table, margin_table, still_table, threshold_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.trade.report import Trade

_CONSOLE = Console(width=120)
_PROGRESS = Console(stderr=True)


def make(folder: Path, *, clips: int, seed: int) -> None:
    """Write clips and manifest, and say where."""
    jobs = make_trade(folder, clips=clips, seed=seed)
    _CONSOLE.print(f"Wrote {len(jobs):,} clips and {folder / MANIFEST_NAME}.", soft_wrap=True)


def trade(*, clips: int, seed: int, keep: str | None, model: str | None, as_json: bool, plot: str | None) -> None:
    """Make the clips, learn from others, ask them every way, and print what each reached and cost."""
    with _folder(keep) as folder, _PROGRESS.status("Making clips") as status:
        manifest = kept_trade(folder, clips=clips, seed=seed)
        known_seed = seed + FIT_SEED_FURTHER
        measured = measure(
            manifest,
            kept_trade(folder, clips=fit_clips(clips), seed=known_seed),
            known_seed=known_seed,
            model=model,
            log_path=folder / "engine.log",
            tell=status.update,
        )
    if plot:
        Path(plot).write_text(draw(measured))
    if as_json:
        print(json.dumps(measured.facts(), indent=2))  # noqa: T201 - for programs, not for a terminal's width
    else:
        _print(measured)


def _print(measured: Trade) -> None:
    for spec in measured.evaluation.specs:
        _CONSOLE.print(accuracy_table(measured, spec.name))
    _CONSOLE.print(still_table(measured.fitted))
    _CONSOLE.print(threshold_table(measured.fitted))
    _CONSOLE.print(margin_table(measured.fitted))
    _CONSOLE.print(cost_table(measured))
    for first in measured.curves:
        _CONSOLE.print(curve_table(measured, first))


@contextmanager
def _folder(kept: str | None) -> Iterator[Path]:
    if kept:
        Path(kept).mkdir(parents=True, exist_ok=True)
        yield Path(kept)
        return
    with TemporaryDirectory(prefix="reelabel-") as folder:
        yield Path(folder)
