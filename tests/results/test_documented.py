"""docs/results.md compared with the schema, and its code blocks, executed unchanged."""

import re
from pathlib import Path

import polars as pl
import pytest
import sqlalchemy
from pyiceberg.utils.config import Config

from flows.cli.rows.formats import write_rows
from infra.settings import ResultsSettings
from tasks.database.tables import CHUNK, DESCRIPTION, FAILURE, RESULT, RUN
from tasks.domain import Stage
from tasks.domain.provenance import FrameProvenance
from tasks.domain.record import names_of
from tasks.results.lake.export import export_ended_runs
from tasks.results.read import read_outcomes
from tasks.results.runs import close_run
from tasks.results.write import ShardWriter
from tests.results.rows import SCOPE, failure, job, result

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "results.md").read_text()


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("table", [RESULT, FAILURE, CHUNK, RUN], ids=lambda table: table.name)
def test_every_column_of_a_table_is_explained(table):
    assert [column.name for column in table.c if not column.comment] == []


def test_the_view_has_every_column_of_each_outcome(db):
    found = [each["name"] for each in sqlalchemy.inspect(db).get_columns("job_state", schema="reelabel")]

    assert sorted(found) == sorted({"state", *RESULT.c.keys(), *FAILURE.c.keys(), *DESCRIPTION.c.keys()})


def test_a_records_column_has_the_description_of_its_field_as_its_comment(db):
    found = sqlalchemy.inspect(db).get_columns("result", schema="reelabel")

    comments = {each["name"]: each["comment"] for each in found}
    assert comments["bytes_fetched"] == "Bytes of the video read for the frames; 0 if the frame file was cached."
    assert comments["order_spread"] == "Largest difference between orders in the probability of a choice, 0 to 1."
    assert all(comments[name] for name in names_of(FrameProvenance))


def test_the_values_of_stages_kinds_and_states_are_listed(db):
    checks = sqlalchemy.inspect(db).get_check_constraints("run", schema="reelabel")
    allowed = re.findall(r"'(\w+)'", " ".join(check["sqltext"] for check in checks if "ARRAY" in check["sqltext"]))

    assert {"running", "backfill"} <= {*allowed}
    assert {*allowed, *Stage} <= {*re.findall(r"`(\w+)`", PAGE)}


def test_its_code_runs_on_the_rows_of_a_run(db, run, store_settings, tmp_path, monkeypatch, capsys):
    ShardWriter(db, run).write(results=[result(job("a"))], failures=[failure(job("b"))])
    with (tmp_path / "rows.parquet").open("wb") as file:
        write_rows(read_outcomes(db, SCOPE), form="parquet", sink=file)
    close_run(db, run.run_id, state="done", message="")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__WAREHOUSE", f"file://{tmp_path}/warehouse")
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    for form, folder in (("parquet", "lake"), ("delta", "delta"), ("iceberg", "iceberg")):
        with db.begin() as connection:
            connection.execute(RUN.update().values(exported_at=None))
        chosen = "iceberg:lake.reelabel" if form == "iceberg" else form
        settings = ResultsSettings(export_uri=f"file://{tmp_path}/{folder}", export_format=chosen)
        export_ended_runs(db, store_settings, settings, dataset="d")
    monkeypatch.chdir(tmp_path)

    for code in blocks("python"):
        if "fiftyone" in code:  # tests/flows/cli/rows/test_review.py runs it, in an environment that has the package
            continue
        exec(compile(code, "docs/results.md", "exec"), {})
    with db.connect() as connection:
        found = [connection.execute(sqlalchemy.text(code)).all() for code in blocks("sql")]

    assert "no_frames" in capsys.readouterr().out
    assert len(found) == 3
    rows = pl.read_parquet("rows.parquet")
    assert rows["created_at"].dtype == pl.Datetime("us", "UTC")
    assert rows["probabilities"].to_list() == [[0.25, 0.75], None]
