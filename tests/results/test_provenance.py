"""Each field of a provenance record is a column of the results, and is kept by an escalation."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pytest
from sqlalchemy import text

import sql.migrate
from infra.database.connect import Role, connected
from sql.roles import OWNER
from tasks.database.tables import RESULT
from tasks.domain.outcome import merge_answers
from tasks.domain.provenance import FrameProvenance
from tasks.domain.record import Merge, column, columns_of
from tasks.results.choose import choose_jobs
from tasks.results.read import read_results
from tasks.results.selection import Selection
from tasks.results.write import ShardWriter
from tests.job_table import job_table
from tests.results.rows import PROVENANCE, SCOPE, ids_of, job, result

MIGRATIONS = Path(sql.migrate.__file__).parent / "migrations"

# All values differ, so that mixed-up columns are detected.
VALUES = {each.attribute: each.type(number) for number, each in enumerate(columns_of(FrameProvenance), start=1)}


def test_every_field_reaches_its_column(db, run):
    ShardWriter(db, run).write([result(job("a"), **VALUES)], [])

    row = read_results(db, SCOPE).row(0, named=True)

    assert {each.attribute: row[each.name] for each in columns_of(FrameProvenance)} == VALUES
    assert VALUES.keys() == asdict(PROVENANCE).keys()
    assert {each.name for each in columns_of(FrameProvenance)} <= {*RESULT.c.keys()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wider(FrameProvenance):
    """A record with a new field, which defines how it is merged."""

    seeks: int = column(Merge.SUM, "Seeks.", default=0)
    container: str = column(Merge.LAST, "Its container.", default="", name="container_format")


@pytest.fixture
def wider_table(db):
    """A table with the new columns, as a migration adds them (docs/extending.md)."""
    with db.begin() as connection:
        connection.execute(text(f"SET LOCAL ROLE {OWNER}"))
        connection.execute(text("ALTER TABLE reelabel.result ADD seeks integer, ADD container_format text"))
        connection.execute(text((MIGRATIONS / "job_state.sql").read_text()))


@pytest.mark.usefixtures("wider_table")
def test_a_new_field_reaches_the_row_and_survives_an_escalation(db, run):
    seen = Wider(**asdict(PROVENANCE), seeks=2, container="mp4")
    first = result(job("a"), (0.4, 0.6), provenance=seen)
    second = result(job("a"), (0.1, 0.9), provenance=replace(seen, sampler="uniform", seeks=5, container="mov"))
    once = result(job("b"), (0.1, 0.9), provenance=seen)

    rows = [merge_answers(first, second, below=0.3), merge_answers(once, None, below=0.3)]
    ShardWriter(db, run).write(rows, [])

    with db.connect() as connection:
        query = text("SELECT seeks, container_format, sampler, decode_ms FROM reelabel.result ORDER BY job_id")
        found = [tuple(row) for row in connection.execute(query)]
    assert found == [(7, "mov", "uniform", 4.0), (2, "mp4", "keyframes", 2.0)]


@pytest.mark.usefixtures("wider_table")
def test_a_new_column_can_be_selected_by(db, database, run):
    jobs = [job("few"), job("many")]
    labels = [
        result(each, provenance=Wider(**asdict(PROVENANCE), seeks=seeks))
        for each, seeks in zip(jobs, (2, 7), strict=True)
    ]
    ShardWriter(db, run).write(labels, [])

    with connected(database, Role.READER) as reader:
        chosen = choose_jobs(reader, SCOPE, Selection(where="seeks > 3"), jobs=job_table(jobs))

    assert ids_of(chosen.jobs) == ["many"]


def test_a_nul_byte_in_a_decoder_s_note_is_replaced(db, run):
    ShardWriter(db, run).write([result(job("a"), decode_note="no box \0\0 here")], [])

    notes = read_results(db, SCOPE)["decode_note"].to_list()
    assert notes == ["no box \N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER} here"]
