"""A bank is read whole, or refused by line."""

from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet

from reelabel.errors import ConfigurationError
from tasks.description.banks import ACTIVITIES, PLACES, read_bank

TEXTS = ("a cat", "a dog, asleep", "Straße")


@pytest.fixture
def write(tmp_path):
    def write(content, name="bank.txt"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


@pytest.mark.parametrize(("bank", "count"), [(PLACES, 20), (ACTIVITIES, 40)])
def test_a_shipped_bank_can_be_used(bank, count):
    assert len(read_bank(bank).texts) == count


@pytest.mark.parametrize(
    ("content", "name"),
    [
        pytest.param("a cat\n a dog, asleep \nStraße\n", "bank.txt", id="text"),
        pytest.param("\ufeffa cat\r\na dog, asleep\r\nStraße", "bank.list", id="text of Windows"),
        pytest.param('id,text\n1,a cat\n2,"a dog, asleep"\n3,Straße\n', "bank.csv", id="CSV"),
        pytest.param('label\na cat\n"a dog, asleep"\nStraße\n', "bank.CSV", id="CSV of one column"),
    ],
)
def test_a_bank_is_read_from_text_and_csv(write, content, name):
    assert read_bank(write(content, name)).texts == TEXTS


def test_a_text_may_have_spaces_of_other_scripts(write):
    assert read_bank(write("赤い\u3000車\nNew\u00a0York\n")).texts == ("赤い\u3000車", "New\u00a0York")


def test_a_bank_is_read_from_parquet(tmp_path):
    path = tmp_path / "bank.parquet"
    pl.DataFrame({"text": TEXTS, "id": [1, 2, 3]}).write_parquet(path)

    assert read_bank(path).texts == TEXTS


@pytest.mark.parametrize(
    ("content", "name", "sentence"),
    [
        ("", "bank.txt", "has no texts"),
        ("\n\n", "bank.txt", "has no texts"),
        ("a cat\n\na dog\n", "bank.txt", "line 2 is empty"),
        ("a cat\na dog\nA Cat\n", "bank.txt", "line 3 repeats line 1: A Cat"),
        ("a cat\na\tdog\n", "bank.txt", r"line 2 has the character U\+0009, which cannot be printed"),
        ("a cat\na\u202edog\n", "bank.txt", r"line 2 has the character U\+202E, which cannot be printed"),
        ("x" * 10_000_000, "bank.txt", "line 1 has more than 2,000 characters"),
        (b"\xff\xfea\0", "bank.txt", "is not UTF-8 text"),
        ("a,b\n1,2\n", "bank.csv", "has no column 'text'"),
        ("id;text\n1;a cat\n", "bank.csv", "not separated by commas"),
        ("id\ttext\n1\ta cat\n", "bank.csv", "not separated by commas"),
        ('text\n"a\nb"\n', "bank.csv", r"line 3 has the character U\+000A"),
        (
            "text\na cat\na dog, asleep\n",
            "bank.csv",
            "Line 3 .* more columns than its first line; put texts",
        ),
        (b"PAR1", "bank.parquet", "Cannot read the bank"),
    ],
)
def test_a_bank_that_cannot_be_used_is_refused_by_line(write, content, name, sentence):
    with pytest.raises(ConfigurationError, match=sentence):
        read_bank(write(content, name))


def test_a_parquet_column_of_numbers_is_refused(tmp_path):
    path = tmp_path / "bank.parquet"
    pl.DataFrame({"text": [1, 2]}).write_parquet(path)

    with pytest.raises(ConfigurationError, match="is int64; it must hold strings"):
        read_bank(path)


def test_a_column_of_categories_is_read(tmp_path):
    path = tmp_path / "bank.parquet"
    pl.DataFrame({"text": TEXTS}, schema={"text": pl.Categorical}).write_parquet(path)

    assert read_bank(path).texts == TEXTS


def test_a_small_file_of_endless_texts_is_refused_without_reading_them(tmp_path):
    path = tmp_path / "bank.parquet"
    texts = pa.DictionaryArray.from_arrays(np.zeros(50_000, np.int32), ["x" * 3_000_000])
    parquet.write_table(pa.table({"text": texts}), path, store_schema=False)  # 150 GB of strings

    with pytest.raises(ConfigurationError, match="line 1 has more than 2,000 characters"):
        read_bank(path)


def test_a_text_of_a_bank_that_needs_much_memory_is_refused_by_its_size(tmp_path):
    path = tmp_path / "bank.parquet"
    parquet.write_table(pa.table({"text": ["a cat", "x" * 150_000_000]}), path, compression="zstd")

    with pytest.raises(ConfigurationError, match=r"The bank .*bank\.parquet has a page of 143 MiB in its column text"):
        read_bank(path)


def test_a_bank_of_unknown_size_is_not_read_without_end():
    with pytest.raises(ConfigurationError, match="is larger than 64 MiB"):
        read_bank(Path("/dev/zero"))


def test_a_missing_bank_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match=r"Cannot read the bank .*none\.txt"):
        read_bank(tmp_path / "none.txt")


def test_a_bank_of_as_many_and_as_long_texts_as_may_be_is_read(write):
    texts = [f"{number:06}" for number in range(99_999)] + ["x" * 2_000]

    assert read_bank(write("\n".join(texts))).texts == tuple(texts)
    with pytest.raises(ConfigurationError, match="has 100,001 texts; the maximum is 100,000"):
        read_bank(write("\n".join([*texts, "y"])))
    with pytest.raises(ConfigurationError, match="line 1 has more than 2,000 characters"):
        read_bank(write("x" * 2_001))


def test_of_many_faults_some_are_listed(write):
    with pytest.raises(ConfigurationError, match=r"line 11 repeats line 1: x, and 89 more lines\."):
        read_bank(write("x\n" * 100))


def test_a_text_longer_than_the_tower_takes_is_named_by_its_line(write):
    bank = read_bank(write("a cat\na very long text\n"))

    bank.check_lengths([3, 16], 16)
    with pytest.raises(ConfigurationError, match="line 2: 17 tokens, but the model takes at most 16"):
        bank.check_lengths([3, 17], 16)
