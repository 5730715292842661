import io
import json

import polars as pl
import pytest

from flows.cli.rows.formats import write_rows

ROWS = pl.DataFrame(
    {"job_id": ["a", 'é "b",\n', "c"], "probabilities": [[0.25, 0.75], None, []], "tokens": [1, None, 3]},
    schema={"job_id": pl.String, "probabilities": pl.List(pl.Float64), "tokens": pl.Int32},
)
READ = {
    "json": lambda data: pl.DataFrame(json.loads(data), schema=ROWS.schema),
    "csv": lambda data: pl.read_csv(data, schema=ROWS.schema | {"probabilities": pl.String}),
    "parquet": pl.read_parquet,
}


def written(parts, form):
    sink = io.BytesIO()
    write_rows(parts, form=form, sink=sink)
    return READ[form](sink.getvalue())


@pytest.mark.parametrize("form", READ)
def test_rows_are_the_same_whatever_their_batches(form):
    in_parts = written([ROWS.clear(), ROWS[:1], ROWS[1:1], ROWS[1:]], form)

    assert in_parts.equals(written([ROWS], form))
    lists = pl.col("probabilities").cast(pl.List(pl.String)).list.join(" ")
    assert in_parts.equals(ROWS.with_columns(lists) if form == "csv" else ROWS)


@pytest.mark.parametrize("form", READ)
def test_an_empty_result_still_has_columns(form):
    columns = written([ROWS.clear()], form).columns

    assert columns == ROWS.columns
