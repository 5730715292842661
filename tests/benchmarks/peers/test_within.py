"""The documented scripts that use PrepareVideo within other libraries, or read their tables, with the real ones."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from benchmarks.peers.environment import peer_python
from reelabel.sources.object_store import ObjectStore
from tasks.manifest.table import open_jobs
from tests.clips import write_clip

pytestmark = pytest.mark.system

ROOT = Path(__file__).parents[3]
WITHIN, TABLES = (
    re.findall(r"^### (.+?)\n\n```python\n(.*?)```", part, re.DOTALL | re.MULTILINE)
    for part in (ROOT / "docs/integrations.md").read_text().split("\n## ")[-2:]
)
MAKE_TABLES = """
import lance
import pyarrow as pa
from pyiceberg.catalog import load_catalog

questions = {"prompt": ["Which?"] * 2, "choices": [["x", "y"]] * 2}
jobs = pa.table({"job_id": ["a", "b"], "video_uri": ["/a.mp4", "/b.mp4"], **questions, "owner": ["me"] * 2})
lance.write_dataset(jobs, "jobs.lance")
catalog = load_catalog("default")
catalog.create_namespace("labels")
catalog.create_table("labels.jobs", schema=jobs.schema).append(jobs)
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    return peer_python("within", tmp_path_factory.mktemp("environments"))


@pytest.fixture
def run(python, tmp_path):
    """Return what runs Python code in the environment and a folder, and what it has printed."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    environment = kept | {"HOME": str(tmp_path), "PYTHONPATH": str(ROOT), "DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1"}
    environment |= {
        "PYICEBERG_CATALOG__DEFAULT__URI": f"sqlite:///{tmp_path}/catalog.db",
        "PYICEBERG_CATALOG__DEFAULT__WAREHOUSE": f"file://{tmp_path}/warehouse",
    }

    def run_code(code):
        (tmp_path / "own.py").write_text(code)
        command = [python, "-P", "own.py"]
        completed = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=120
        )
        assert completed.returncode == 0, completed.stderr[-4000:]
        return completed.stdout

    return run_code


@pytest.mark.parametrize("code", [pytest.param(code, id=name) for name, code in WITHIN])
def test_the_documented_script_prepares_videos_and_tells_of_a_missing_one(run, tmp_path, code):
    write_clip(tmp_path / "a.mp4")

    lines = sorted(line for line in run(code).splitlines() if ".mp4" in line)

    assert re.fullmatch(r"a\.mp4 [1-8]", lines[0])
    assert lines[1].startswith("gone.mp4 There is no video")
    assert len(lines) == 2


def test_the_documented_scripts_write_manifests_from_lance_and_iceberg_tables(run, tmp_path):
    rename = 'import os\nos.rename("jobs.parquet", "{}.parquet")'
    run("\n".join([MAKE_TABLES, *(f"{code}\n{rename.format(name)}" for name, code in TABLES)]))

    assert [name for name, _ in TABLES] == ["Lance", "Iceberg"]
    for name, _ in TABLES:
        with open_jobs(str(tmp_path / f"{name}.parquet"), ObjectStore()) as jobs:
            assert jobs.rows == 2
