"""Whole copies of remote videos."""

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from infra.settings import StoreSettings, WebSettings
from reelabel.errors import DiskUnavailableError, ObjectTooLargeError
from reelabel.sources.download_cache import DownloadCache
from reelabel.sources.object_store import ObjectStore
from reelabel.sources.source import StoredSource
from tests.reelabel.sources.web_server import serving

BODY = bytes(range(256)) * 20


@pytest.fixture
def server():
    with serving() as server:
        yield server


@pytest.fixture
def objects():
    return ObjectStore(StoreSettings(), WebSettings(allow_private=True))


@pytest.mark.parametrize("memory_bytes", [0, len(BODY)], ids=["on disk", "in memory"])
def test_another_process_can_read_an_unnamed_copy(server, objects, memory_bytes, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    info = objects.stat(server.add("/video", body=BODY))

    with DownloadCache(memory_bytes=memory_bytes).local_copy(StoredSource(objects, info), max_bytes=len(BODY)) as copy:
        assert subprocess.check_output(["/bin/cat", copy.path]) == BODY
        assert copy.bytes_fetched == len(BODY)
        assert not list(tmp_path.iterdir())
    assert not copy.path.exists()


@pytest.mark.parametrize(
    ("memory_bytes", "is_kept", "location"),
    [
        (len(BODY), False, "/memfd:video"),
        (len(BODY), True, "/memfd:video"),
        (len(BODY) - 1, False, "/temporary/"),
        (len(BODY) - 1, True, "/kept/"),
    ],
)
def test_small_copies_are_in_memory_and_large_ones_in_a_folder(
    server, objects, tmp_path, monkeypatch, memory_bytes, is_kept, location
):
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    info = objects.stat(server.add("/video", body=BODY))
    copies = DownloadCache(memory_bytes=memory_bytes, folder=tmp_path / "kept" if is_kept else None)

    with copies.local_copy(StoredSource(objects, info), max_bytes=len(BODY)) as copy:
        assert location in str(copy.path.resolve())
    assert not [each for each in Path("/proc/self/fd").iterdir() if str(tmp_path) in os.path.realpath(each)]


def test_an_error_of_the_source_is_raised_unchanged(server, objects):
    info = objects.stat(server.add("/video", body=BODY))

    with pytest.raises(ObjectTooLargeError), DownloadCache().local_copy(StoredSource(objects, info), max_bytes=100):
        pass


@pytest.mark.parametrize("keeps", [True, False], ids=["kept", "temporary"])
def test_an_unwritable_folder_is_named(server, objects, tmp_path, monkeypatch, keeps):
    (tmp_path / "file").touch()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "file"))
    info = objects.stat(server.add("/video", body=BODY))
    copies = DownloadCache(folder=tmp_path / "file" if keeps else None)

    with (
        pytest.raises(DiskUnavailableError, match=rf"/video to .*{tmp_path}/file \(Not a directory\)"),
        copies.local_copy(StoredSource(objects, info), max_bytes=len(BODY)),
    ):
        pass


def test_a_kept_copy_that_many_want_is_made_once(server, objects, tmp_path):
    info = objects.stat(server.add("/video", body=BODY, pause_s=0.05))
    copies = DownloadCache(folder=tmp_path)

    def hold(_):
        with copies.local_copy(StoredSource(objects, info), max_bytes=len(BODY)) as copy:
            return copy.path.read_bytes(), copy.bytes_fetched

    with ThreadPoolExecutor(4) as threads:
        got = list(threads.map(hold, range(4)))

    assert [data for data, _ in got] == [BODY] * 4
    assert sorted(size for _, size in got) == [0, 0, 0, len(BODY)]
    assert len(server.requests("/video")) == 2


def test_a_truncated_copy_is_regenerated(server, objects, tmp_path):
    info = objects.stat(server.add("/video", body=BODY))
    copies = DownloadCache(folder=tmp_path)
    with copies.local_copy(StoredSource(objects, info), max_bytes=len(BODY)) as copy:
        copy.path.write_bytes(BODY[:-1])

    with copies.local_copy(StoredSource(objects, info), max_bytes=len(BODY)) as again:
        assert again.path.read_bytes() == BODY


def test_what_a_killed_process_has_left_is_written_over(server, objects, tmp_path):
    info = objects.stat(server.add("/video", body=BODY))
    source = StoredSource(objects, info)

    def write_a_part(path, **_):
        path.write_bytes(BODY[:100])
        os._exit(0)

    if not (killed := os.fork()):
        source.copy_to = write_a_part
        with DownloadCache(folder=tmp_path).local_copy(source, max_bytes=len(BODY)):
            os._exit(1)
    os.waitpid(killed, 0)
    with DownloadCache(folder=tmp_path).local_copy(source, max_bytes=len(BODY)) as copy:
        assert [each.name for each in copy.path.parent.iterdir()] == ["video"]
