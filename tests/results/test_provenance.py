"""Each field of a provenance record is a column of the results, and is kept by an escalation."""

from dataclasses import asdict, dataclass, replace

from tasks.database.tables import RESULT
from tasks.domain.outcome import merge_answers
from tasks.domain.provenance import FrameProvenance
from tasks.domain.record import Merge, column, columns_of
from tasks.results.read import read_results
from tasks.results.write import ShardWriter
from tests.results.rows import PROVENANCE, SCOPE, job, result

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


def test_a_new_field_survives_an_escalation():
    seen = Wider(**asdict(PROVENANCE), seeks=2, container="mp4")
    first = result(job("a"), (0.4, 0.6), provenance=seen)
    second = result(job("a"), (0.1, 0.9), provenance=replace(seen, sampler="uniform", seeks=5, container="mov"))

    merged = merge_answers(first, second, below=0.3).provenance

    assert (merged.seeks, merged.container, merged.sampler, merged.decode_ms) == (7, "mov", "uniform", 4.0)


def test_a_nul_byte_in_a_decoder_s_note_is_replaced(db, run):
    ShardWriter(db, run).write([result(job("a"), decode_note="no box \0\0 here")], [])

    notes = read_results(db, SCOPE)["decode_note"].to_list()
    assert notes == ["no box \N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER} here"]
