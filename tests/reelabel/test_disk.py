import errno
import os
from pathlib import Path

import pyarrow as pa
import pytest

from reelabel.disk import disk_errors, full_disk, is_full
from reelabel.errors import DiskFullError, TransientError, VideoMissingError
from reelabel.sources.local import FileStore

FULL = OSError(errno.ENOSPC, "No space left on device")


def write_text():
    Path("/dev/full").write_text("x")


def write_arrow():
    with pa.OSFile("/dev/full", "wb") as file:
        file.write(b"x" * 10)


def write_of_a_library():
    try:
        write_text()
    except OSError as error:
        raise ValueError("It cannot be saved.") from error


@pytest.mark.parametrize("write", [write_text, write_arrow, write_of_a_library])
def test_a_failed_write_names_the_full_disk_whichever_library_it_was_in(write, tmp_path):
    with (
        pytest.raises(
            DiskFullError, match=rf"^The disk of {tmp_path} is full; .*run the same command again\.$"
        ) as raised,
        disk_errors(tmp_path),
    ):
        write()
    assert isinstance(raised.value, TransientError)


def test_other_errors_are_unchanged(tmp_path):
    for error in (
        OSError(errno.EIO, "Input/output error", "No space left on device.mp4"),
        ValueError("x"),
        VideoMissingError("x"),
    ):
        with pytest.raises(type(error)) as raised, disk_errors(tmp_path):
            raise error
        assert raised.value is error


@pytest.mark.parametrize(
    "error",
    [
        FULL,
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        RuntimeError("Error while serializing: IO Error: No space left on device (os error 28)"),
        FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']"),
    ],
)
def test_signs_of_a_full_disk_are_recognised(error):
    assert is_full(error)
    assert full_disk([Path("/tmp")], error)


def test_a_disk_with_space_is_not_full_and_terminals_and_read_only_images_are_not_disks():
    assert full_disk([Path("/nowhere/at/all"), Path("/proc/self/fd"), Path("/dev/pts")]) is None
    assert full_disk([]) is None


def test_the_full_disk_is_found_by_the_file_that_could_not_be_written(tmp_path):
    error = OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "there" / "x"))

    assert f"The disk of {tmp_path} is full" in full_disk([Path("/dev/shm")], error).message


def test_a_disk_that_has_space_but_no_inodes_is_described_as_such(tmp_path, monkeypatch):
    found = os.statvfs_result((4096, 4096, 2**20, 2**19, 2**19, 1000, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _folder: found)

    error = full_disk([tmp_path])

    assert error.message == (
        f"The disk of {tmp_path} has no free inodes; remove files, then run the same command again."
    )


@pytest.mark.parametrize("write", [FileStore.write_new, FileStore.replace])
def test_a_store_in_a_folder_reports_a_full_disk(tmp_path, write, monkeypatch):
    def fail(_file):
        raise FULL

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(DiskFullError, match=f"The disk of {tmp_path}"):
        write(FileStore(), f"{tmp_path.as_uri()}/x", b"data")
    assert list(tmp_path.iterdir()) == []
