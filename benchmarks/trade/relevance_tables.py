"""Tables of what `relevant` shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.console import figures_table
from benchmarks.trade.relevance import BASELINE, COUNTS
from benchmarks.trade.tables import share_cell, signed_cell

if TYPE_CHECKING:
    from rich.table import Table

    from benchmarks.trade.relevance import RelevanceTrade


def seen_table(trade: RelevanceTrade) -> Table:
    """Tabulate what each sampler shows, and what is answered by that."""
    title = f"{trade.clips:,} clips of a minute, three seconds of which answer the question"
    shown = ("clips of which it is shown", "frames of it", "decoded a clip")
    table = figures_table(title, ("sampler", "frames", "accuracy, with 95% interval", f"minus {BASELINE}", *shown))
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
    title = "Clips of which it is shown, and frames of it, by what frames are compared with"
    headings = ("clips", "compared with", "stands out by", *(f"{count} frames" for count in COUNTS))
    table = figures_table(title, headings, names=3)
    for each in trade.compared:
        cells = (f"{found.value:.2f}, {frames:.1f}" for found, frames in zip(each.found, each.frames, strict=True))
        table.add_row(each.task, each.texts, f"{each.stands_out:g}", *cells)
    return table
