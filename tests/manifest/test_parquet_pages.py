"""Headers of Parquet's pages: of several writers, and damaged."""

import random
from io import BytesIO

import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet

from tasks.manifest.parquet_pages import read_pages

TABLE = pa.table({"text": [f"What is in video {n % 500}?" for n in range(30_000)], "choices": [["a", None]] * 30_000})


def written(**options):
    data = BytesIO()
    parquet.write_table(TABLE, data, **options)
    return data


def written_by_polars():
    data = BytesIO()
    pl.DataFrame(TABLE).write_parquet(data)
    return data


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(written(), id="dictionary"),
        pytest.param(written(use_dictionary=False, data_page_size=10_000), id="many pages"),
        pytest.param(written(data_page_version="2.0", compression="none"), id="version 2"),
        pytest.param(written(write_page_checksum=True, row_group_size=7000), id="checksums"),
        pytest.param(written_by_polars(), id="Polars"),
    ],
)
def test_the_pages_of_a_column_have_its_values_and_its_size(data):
    metadata = parquet.read_metadata(data)
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for chunk in map(group.column, range(group.num_columns)):
            pages = list(read_pages(data, chunk))

            headers = chunk.total_uncompressed_size - sum(page.size_bytes for page in pages)
            assert sum(page.values for page in pages if page.is_data) == chunk.num_values
            assert 10 * len(pages) < headers < 200 * len(pages)


def test_a_damaged_header_is_refused_and_never_read_without_end():
    data = written(use_dictionary=False, data_page_size=1000).getvalue()
    chunk = parquet.read_metadata(BytesIO(data)).row_group(0).column(0)
    dice, refused = random.Random(1), 0
    for _ in range(300):
        damaged = bytearray(data)
        for _ in range(3):
            damaged[chunk.data_page_offset + dice.randrange(40)] = dice.randrange(256)
        try:
            assert len(list(read_pages(BytesIO(bytes(damaged)), chunk))) < 30_000
        except pa.ArrowInvalid:
            refused += 1

    assert refused > 100


def test_a_size_that_is_no_number_is_damage():
    data = bytearray(written(use_dictionary=False).getvalue())
    chunk = parquet.read_metadata(BytesIO(bytes(data))).row_group(0).column(0)
    header = bytes.fromhex("15 00 11 15 02 2c 15 02 00 00")  # the second field is a boolean
    data[chunk.data_page_offset : chunk.data_page_offset + len(header)] = header

    with pytest.raises(pa.ArrowInvalid, match="the header of a page cannot be read"):
        list(read_pages(BytesIO(bytes(data)), chunk))
