"""Small files of long texts: refused by what their footer says, or read in bounded memory."""

import subprocess
import sys

import pyarrow as pa
import pytest
from pyarrow import parquet

from infra.errors import ManifestError
from infra.settings import StoreSettings
from reelabel.sources.object_store import ObjectStore
from tasks.manifest.parquet import open_manifest
from tasks.manifest.table import open_jobs

MIB = 1024**2
CHECK = """
import re, runpy, sys
sys.argv = ["reelabel", "manifest", "check", sys.argv[1]]
try:
    runpy.run_module("flows.cli", run_name="__main__")
except SystemExit as ended:
    print("peak", int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) // 1024)
    raise
"""


@pytest.fixture
def objects():
    return ObjectStore(StoreSettings())


def write(path, prompts, **options):
    columns = {
        "job_id": [f"{number}" for number in range(len(prompts))],
        "video_uri": ["/a.mp4"] * len(prompts),
        "prompt": prompts,
        "choices": [["a", "b"]] * len(prompts),
    }
    parquet.write_table(pa.table(columns), path, compression="zstd", **options)
    return str(path)


def checked(path):
    """What `manifest check` says, and its peak of memory in MiB."""
    ended = subprocess.run(
        [sys.executable, "-c", CHECK, path], capture_output=True, text=True, check=False, timeout=100
    )
    said = " ".join((ended.stdout + ended.stderr).split())
    return said, int(ended.stdout.rpartition("peak ")[2])


def test_a_prompt_of_300_mb_in_a_file_of_kilobytes_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "bomb.parquet"
    write(path, ["x" * 300_000_000], use_dictionary=False, write_statistics=False)

    said, peak_mib = checked(str(path))

    assert path.stat().st_size < 100_000
    assert "has a text of more than 100,000 characters in its column prompt" in said, said
    assert peak_mib < 500


@pytest.mark.parametrize("options", [{}, {"use_dictionary": False}], ids=["by dictionary", "plain"])
def test_many_rows_of_a_long_text_are_read_in_batches_of_bounded_size(tmp_path, objects, options):
    path = write(tmp_path / "many.parquet", ["x" * 100_000] * 3000, **options)

    with open_manifest(path, objects) as files:
        sizes = [(len(batch), batch.estimated_size()) for batch in files.batches()]

    assert sum(rows for rows, _ in sizes) == 3000
    assert max(size for _, size in sizes) < 130 * MIB


def test_a_row_with_a_long_text_among_many_is_named(tmp_path, objects):
    path = write(tmp_path / "one.parquet", ["What?"] * 20_000 + ["x" * 100_001])

    with (
        pytest.raises(ManifestError, match="prompt must have at most 100,000 characters") as refused,
        open_jobs(path, objects),
    ):
        pass

    assert "row 20000" in str(refused.value)
    assert len(str(refused.value)) < 500


def test_texts_shared_by_rows_are_read_as_they_were_written(tmp_path, objects):
    rows = [
        {"job_id": f"{n}", "prompt": ["Wer?", None, "Ü" * 50][n % 3], "choices": ["ja", "nein"]} for n in range(999)
    ]
    messages = [[{"role": "user", "content": [{"type": "text", "text": "Wer?"}]}]] * 999
    table = pa.Table.from_pylist(rows).append_column("messages", pa.array(messages))
    parquet.write_table(table, tmp_path / "shared.parquet", row_group_size=100)

    with open_manifest(f"{tmp_path}/shared.parquet", objects) as files:
        [batch] = files.batches()

    assert batch.select("job_id", "prompt", "choices").to_dicts() == rows
    assert batch["messages"].to_list() == messages
