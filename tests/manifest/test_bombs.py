"""Small files of long texts: refused by what their footer says, or read in bounded memory."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet

from infra.errors import ManifestError
from tasks.manifest.parquet import open_manifest
from tasks.manifest.table import open_jobs

MIB = 1024**2
CHECK = """
import re, runpy, sys
for path in sys.argv[1:]:
    sys.argv = ["reelabel", "manifest", "check", path]
    try:
        runpy.run_module("flows.cli", run_name="__main__")
    except SystemExit as ended:
        print("exit", ended.code)
    print("peak", int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) // 1024)
"""


def write(path, prompts, **options):
    columns = {
        "job_id": [f"{number}" for number in range(len(prompts))],
        "video_uri": ["/a.mp4"] * len(prompts),
        "prompt": prompts,
        "choices": [["a", "b"]] * len(prompts),
    }
    parquet.write_table(pa.table(columns), path, compression="zstd", **options)
    return str(path)


def checked(*paths):
    """What `manifest check` says of files, and by how many MiB its peak of memory is above that with the first."""
    completed = subprocess.run(
        [sys.executable, "-c", CHECK, *paths], capture_output=True, text=True, check=False, timeout=100
    )
    output = " ".join((completed.stdout + completed.stderr).split())
    peaks_mib = [int(peak) for peak in re.findall(r"peak (\d+)", output)]
    return output, peaks_mib[-1] - peaks_mib[0]


PLAIN = {"use_dictionary": False, "write_statistics": False}
SHORT = ["What?"] * 1000


def test_a_text_of_300_mb_in_a_file_of_kilobytes_is_refused_before_it_is_read_however_it_is_written(tmp_path):
    bomb = "x" * 300_000_000
    prefixes = {"prompt": "DELTA_BYTE_ARRAY"}
    paths = [
        write(tmp_path / "plain.parquet", [*SHORT, bomb], **PLAIN),
        write(tmp_path / "dictionary.parquet", [*SHORT, bomb]),
        write(tmp_path / "bytes.parquet", pa.array([b"What?", bomb.encode()])),
        write(tmp_path / "prefixes.parquet", [*SHORT, bomb], column_encoding=prefixes, **PLAIN),
    ]

    output, more_mib = checked(write(tmp_path / "short.parquet", SHORT), *paths)

    assert max(Path(path).stat().st_size for path in paths) < 100_000
    assert output.count("has a page of 286 MiB in its column prompt, more than 128; shorten its texts") == len(paths), (
        output
    )
    assert output.count("exit 2") == len(paths)
    assert more_mib < 143, "half a text"


def test_a_text_that_rows_share_is_cut_before_it_is_taken_apart(tmp_path, local_objects):
    texts = pa.DictionaryArray.from_arrays(np.zeros(20_000, np.int32), ["x" * 50_000_000])  # 1 TB
    path = write(tmp_path / "shared.parquet", texts, store_schema=False)

    with pytest.raises(ManifestError, match="prompt must have at most 100,000 characters") as raised:
        open_jobs(path, local_objects, only=pl.Series(["7", "19999"])).__enter__()

    assert "2 rows, first row 7" in str(raised.value)


def test_a_text_that_choices_share_is_cut_before_it_is_taken_apart(tmp_path, local_objects):
    choices = pa.DictionaryArray.from_arrays(np.zeros(1000, np.int32), ["x" * 50_000_000])
    table = pa.table({"job_id": ["a"], "choices": pa.ListArray.from_arrays([0, 1000], choices)})
    parquet.write_table(table, tmp_path / "choices.parquet", compression="zstd", store_schema=False)

    with open_manifest(f"{tmp_path}/choices.parquet", local_objects) as files:
        [batch] = files.batches()

    assert batch["choices"].to_list() == [["x" * 4001] * 1000]


def test_valid_texts_that_rows_share_are_checked_in_parts_of_bounded_size(tmp_path, local_objects):
    path = write(tmp_path / "many.parquet", ["x" * 100_000] * 3000)

    with open_jobs(path, local_objects) as jobs:
        sizes = [(len(part), part.estimated_size()) for part in jobs.parts()]

    assert sum(rows for rows, _ in sizes) == len(jobs) == 3000
    assert max(size for _, size in sizes) < 256 * MIB


@pytest.mark.parametrize("options", [{}, {"use_dictionary": False}], ids=["by dictionary", "plain"])
def test_many_rows_of_a_long_text_are_read_in_batches_of_bounded_size(tmp_path, local_objects, options):
    path = write(tmp_path / "many.parquet", ["x" * 100_000] * 3000, **options)

    with open_manifest(path, local_objects) as files:
        sizes = [(len(batch), batch.estimated_size()) for batch in files.batches()]

    assert sum(rows for rows, _ in sizes) == 3000
    assert max(size for _, size in sizes) < 33 * MIB


def test_a_row_with_a_long_text_among_many_is_named(tmp_path, local_objects):
    path = write(tmp_path / "one.parquet", ["What?"] * 20_000 + ["x" * 100_001])

    with (
        pytest.raises(ManifestError, match="prompt must have at most 100,000 characters") as raised,
        open_jobs(path, local_objects),
    ):
        pass

    assert "row 20000" in str(raised.value)
    assert len(str(raised.value)) < 500


def test_texts_shared_by_rows_are_read_as_they_were_written(tmp_path, local_objects):
    rows = [
        {"job_id": f"{n}", "prompt": ["Wer?", None, "Ü" * 50][n % 3], "choices": ["ja", "nein"]} for n in range(999)
    ]
    messages = [[{"role": "user", "content": [{"type": "text", "text": "Wer?"}]}]] * 999
    table = pa.Table.from_pylist(rows).append_column("messages", pa.array(messages))
    parquet.write_table(table, tmp_path / "shared.parquet", row_group_size=100)

    with open_manifest(f"{tmp_path}/shared.parquet", local_objects) as files:
        [batch] = files.batches()

    assert batch.select("job_id", "prompt", "choices").to_dicts() == rows
    assert batch["messages"].to_list() == messages
