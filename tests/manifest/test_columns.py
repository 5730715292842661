"""Columns of manifests: their types, those that differ between files, and files without any."""

import json
from decimal import Decimal

import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from infra.errors import ManifestError
from tasks.manifest.table import open_jobs, read_jobs
from tests.manifest.conftest import manifest_rows

TWO = {"job_id": ["a", "b"], "video_uri": ["/a.mp4", "/b.mp4"], "prompt": ["?"] * 2, "choices": [["yes", "no"]] * 2}
NO_TEXT = pa.Array.from_buffers(
    pa.string(), 2, [None, pa.array([0, 2, 3], pa.int32()).buffers()[1], pa.py_buffer(b"\xff\xfea")]
)


@pytest.mark.parametrize(
    ("name", "column", "message"),
    [
        ("job_id", NO_TEXT, "has a text that is not UTF-8 in its column job_id; write the file again"),
        ("prompt", NO_TEXT, "has a text that is not UTF-8 in its column prompt; write the file again"),
        (
            "choices",
            pa.array(TWO["choices"], pa.list_view(pa.string())),
            "whose type cannot be read, one of: .*list_view",
        ),
        ("start_s", pa.array([Decimal(1), Decimal(2)], pa.decimal256(50, 3)), "start_s has type Decimal.precision=50"),
    ],
)
@pytest.mark.parametrize("only", [None, pl.Series(["a"])])
def test_columns_that_no_reader_can_convert_are_refused_in_a_sentence(
    tmp_path, local_objects, name, column, message, only
):
    pq.write_table(pa.table(TWO | {name: column}), tmp_path / "m.parquet")

    with pytest.raises(ManifestError, match=message), open_jobs(str(tmp_path / "m.parquet"), local_objects, only=only):
        pass


def test_messages_of_the_type_json_are_texts(tmp_path, local_objects):
    content = [{"type": "video_url", "video_url": {"url": "/a.mp4"}}, {"type": "text", "text": "?"}]
    texts = pa.array([json.dumps([{"role": "user", "content": content}])] * 2)
    table = pa.table({name: TWO[name] for name in ("job_id", "choices")} | {"messages": texts.cast(pa.json_())})
    pq.write_table(table, tmp_path / "m.parquet")

    assert [job.video_uri for job in read_jobs(str(tmp_path / "m.parquet"), local_objects)] == ["/a.mp4"] * 2


def test_files_with_different_columns_form_one_manifest(tmp_path, local_objects):
    manifest_rows(3).with_columns(job_id=pl.Series([1, 2, 3]), task=pl.lit("t")).write_parquet(tmp_path / "1.parquet")
    manifest_rows(2).write_parquet(tmp_path / "2.parquet")

    jobs = read_jobs(f"{tmp_path}/*.parquet", local_objects)

    assert [(job.job_id, job.task) for job in jobs] == [("1", "t"), ("2", "t"), ("3", "t"), ("j0", None), ("j1", None)]


def test_files_with_contradicting_columns_are_refused(tmp_path, local_objects):
    manifest_rows(3).write_parquet(tmp_path / "1.parquet")
    manifest_rows(3).with_columns(choices=pl.lit(1)).write_parquet(tmp_path / "2.parquet")

    with pytest.raises(ManifestError, match="have incompatible column types"):
        read_jobs(f"{tmp_path}/*.parquet", local_objects)


def test_foreign_columns_are_never_read_whatever_they_contain(tmp_path, local_objects):
    table = manifest_rows(3).to_arrow()
    for name in ("seen", "note", "note"):
        table = table.append_column(name, pa.array([1, 2, 3], pa.timestamp("us", "+05:30")))
    pq.write_table(table, tmp_path / "m.parquet")

    jobs = read_jobs(str(tmp_path / "m.parquet"), local_objects)

    assert [job.job_id for job in jobs] == ["j0", "j1", "j2"]


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("job_id", pa.array(["a", "b", "c"]), r"m\.parquet has duplicate columns job_id; remove all but one"),
        ("answer", pa.array([1, 2, 3], pa.timestamp("us", "+05:30")), r"answer \(timestamp\[us, tz=\+05:30\]\)"),
    ],
)
def test_columns_that_cannot_be_read_are_named(tmp_path, local_objects, name, values, message):
    pq.write_table(manifest_rows(3).to_arrow().append_column(name, values), tmp_path / "m.parquet")

    with pytest.raises(ManifestError, match=message):
        read_jobs(str(tmp_path / "m.parquet"), local_objects)


def test_a_file_without_any_manifest_column_is_named(tmp_path, local_objects):
    manifest_rows(3).write_parquet(tmp_path / "1.parquet")
    pl.DataFrame({"jobid": ["a"]}).write_parquet(tmp_path / "2.parquet")

    with pytest.raises(ManifestError, match=r"2\.parquet has no manifest columns; it needs job_id, video_uri"):
        read_jobs(f"{tmp_path}/*.parquet", local_objects)
