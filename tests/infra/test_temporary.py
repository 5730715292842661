import os
import signal
import subprocess
import sys
import tempfile

import pytest

from infra.temporary import (
    remove_stale_folders,
    temporary_folder,
)

HOLD = """
import time
from infra.temporary import temporary_folder
with temporary_folder("jobs") as folder:
    (folder / "00000.arrows").write_bytes(b"rows")
    print(folder, flush=True)
    time.sleep(600)
"""


@pytest.fixture(autouse=True)
def temp_root(tmp_path, monkeypatch):
    """A folder for temporary files of the test's own."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


@pytest.fixture
def held():
    """A process that holds a folder."""
    process = subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True)
    yield process
    process.kill()
    process.communicate()


def test_the_folder_of_a_killed_process_is_removed_and_that_of_a_running_one_kept(held, temp_root):
    folder = temp_root / held.stdout.readline().strip()
    assert remove_stale_folders(older_than_s=-1) == 0
    assert folder.is_dir()

    os.kill(held.pid, signal.SIGKILL)
    held.wait()

    assert remove_stale_folders(older_than_s=3600) == 0
    assert remove_stale_folders(older_than_s=-1, dry_run=True) == 1
    assert folder.is_dir()
    assert remove_stale_folders(older_than_s=-1) == 1
    assert not folder.exists()


def test_foreign_folders_are_kept(temp_root):
    (temp_root / "reelabel-jobs-file").touch()
    (temp_root / "strangers-jobs").mkdir()
    (temp_root / "reelabel-jobs-link").symlink_to(temp_root / "strangers-jobs")

    assert remove_stale_folders(older_than_s=-1) == 0
    assert len(list(temp_root.iterdir())) == 3


def test_a_folder_starts_empty_and_is_removed_at_the_end():
    with temporary_folder("manifest") as folder:
        assert list(folder.iterdir()) == []
        (folder / "x").touch()
    assert not folder.exists()
