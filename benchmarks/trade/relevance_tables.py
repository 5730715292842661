"""Tables of what `relevant` shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from benchmarks.trade.relevance import BASELINE, COUNTS
from benchmarks.trade.tables import share_cell, signed_cell

if TYPE_CHECKING:
    from benchmarks.trade.relevance import RelevanceTrade


def seen_table(trade: RelevanceTrade) -> Table:
    """Tabulate what each sampler shows, and what is answered by that."""
    table = Table(
        title=f"{trade.clips:,} clips of a minute, three seconds of which answer the question", title_justify="left"
    )
    table.add_column("sampler")
    names = (
        "frames",
        "accuracy, with 95% interval",
        f"minus {BASELINE}",
        "clips of which it is shown",
        "frames of it",
        "decoded a clip",
    )
    for name in names:
        table.add_column(name, justify="right")
    for each in trade.seen:
        table.add_row(
            each.sampler,
            f"{each.count}",
            share_cell(each.accuracy),
            signed_cell(each.difference) if each.difference else "",
            share_cell(each.found),
            f"{each.frames:.1f}",
            f"{each.decoded:,.0f}",
        )
    return table


def compared_table(trade: RelevanceTrade) -> Table:
    """Tabulate what is found by comparing frames with other texts, and with other thresholds."""
    table = Table(
        title="Clips of which it is shown, and frames of it, by what frames are compared with", title_justify="left"
    )
    for name in ("clips", "compared with", "stands out by"):
        table.add_column(name)
    for count in COUNTS:
        table.add_column(f"{count} frames", justify="right")
    for each in trade.compared:
        cells = (f"{found.value:.2f}, {frames:.1f}" for found, frames in zip(each.found, each.frames, strict=True))
        table.add_row(each.task, each.texts, f"{each.stands_out:g}", *cells)
    return table
