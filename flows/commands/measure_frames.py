"""`reelabel bench similar` and `reelabel bench cache`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from benchmarks.cache import measure_cache
from benchmarks.similar import measure_similar, overall_factor
from flows.commands.opened import services
from infra.embedded import ServiceName
from infra.objects import ObjectStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.cache import CacheRow
    from benchmarks.similar import SimilarRow

_CONSOLE = Console()


def similar(folder: Path, *, threshold: float, as_json: bool) -> None:
    """Measure what `drop_similar` leaves of scenes, and print a table, or JSON."""
    with Console(stderr=True).status("Measuring; scenes are filmed the first time"):
        rows = list(measure_similar(folder, threshold=threshold))
    static, moving = (overall_factor(rows, is_static=is_static) for is_static in (True, False))
    if as_json:
        facts = {
            "threshold": threshold,
            "static_factor": round(static, 3),
            "moving_factor": round(moving, 3),
            "scenes": [asdict(row) | {"factor": round(row.factor, 3)} for row in rows],
        }
        print(json.dumps(facts, indent=2))  # noqa: T201 - for programs, not for a terminal's width
        return
    _CONSOLE.print(_similar_table(rows, threshold))
    _CONSOLE.print(f"Static scenes together: {static:.1f} times fewer frames; moving ones: {moving:.1f}.")


def cache(counts: Sequence[int], *, on_store: bool, as_json: bool) -> None:
    """Measure listing and planning in a folder, or on the store that is set, and print a table, or JSON."""
    needed = [ServiceName.S3] if on_store else []
    with services(*needed) as settings, TemporaryDirectory(prefix="reelabel-") as folder:
        root_uri = f"{settings.store.uri}/bench/cache" if on_store else Path(folder).as_uri()
        with Console(stderr=True).status("Filling a cache, and measuring"):
            rows = list(measure_cache(ObjectStore(settings.store, settings.web), root_uri, counts))
    if as_json:
        print(json.dumps([asdict(row) for row in rows], indent=2))  # noqa: T201 - for programs
    else:
        _CONSOLE.print(_cache_table(rows, "on the store" if on_store else "in a folder"))


def _similar_table(rows: Sequence[SimilarRow], threshold: float) -> Table:
    title = f"Frames of a minute at 1 a second, drop_similar {threshold:g}"
    table = Table("Scene", "", "before", "after", "times fewer", "compared in, ms", title=title, title_justify="left")
    for row in rows:
        kind = "static" if row.is_static else "moving"
        table.add_row(row.scene, kind, f"{row.before}", f"{row.after}", f"{row.factor:.1f}", f"{row.drop_ms:.1f}")
    return table


def _cache_table(rows: Sequence[CacheRow], where: str) -> Table:
    table = Table("", *(f"{row.files:,} files" for row in rows), title=f"A cache {where}", title_justify="left")
    for title, values in (
        ("cache ls, s", [f"{row.list_s:.2f}" for row in rows]),
        ("peak of Python's memory, KiB", [f"{row.list_peak_bytes / 1024:,.0f}" for row in rows]),
        ("cache gc --dry-run, s", [f"{row.plan_s:.2f}" for row in rows]),
        ("peak of Python's memory, KiB", [f"{row.plan_peak_bytes / 1024:,.0f}" for row in rows]),
    ):
        table.add_row(title, *values)
    return table
