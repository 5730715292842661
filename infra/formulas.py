"""CSV texts that a spreadsheet would run as formulas."""

from __future__ import annotations

import polars as pl

# A cell is a formula if it begins with one of these, also in full width, after spaces or a line break.
_FORMULA = r"^\s*[=+\-@\x{FF1D}\x{FF0B}\x{FF0D}\x{FF20}]|^[\t\r\n]"


def without_formulas(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a frame with an apostrophe before every text that a spreadsheet would run; numbers keep their sign."""
    texts = pl.col(pl.String)
    return frame.with_columns(pl.when(texts.str.contains(_FORMULA)).then("'" + texts).otherwise(texts).name.keep())
