import polars as pl
import pytest

from infra.formulas import without_formulas

FORMULAS = [
    "=1+1",
    "+1",
    "-1+cmd|' /C calc'!A0",
    "@SUM(A1)",
    "\tx",
    "\rx",
    "\nx",
    " =1",
    "\n =1",
    "\uff1d1",
    "\uff0b1",
    "\uff0d1",
    "\uff20x",
]


@pytest.mark.parametrize("text", FORMULAS, ids=repr)
def test_no_text_is_a_formula(text):
    assert without_formulas(pl.DataFrame({"x": [text]}))["x"].to_list() == ["'" + text]


def test_everything_else_is_unchanged():
    rows = pl.DataFrame(
        {"text": ["a=1", "", None, "'", " a", "é"], "count": range(-3, 3), "share": [-0.5] * 6},
        schema_overrides={"count": pl.Int32},
    )

    assert without_formulas(rows).equals(rows)
    assert without_formulas(rows.clear()).schema == rows.schema
