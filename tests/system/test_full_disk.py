"""A full disk, at each stage: one sentence names it, nothing is lost, and the same call works once there is space.

Each test has a small disk of its own, which only root may mount.
"""

import os
import subprocess
import tempfile
from contextlib import suppress

import polars as pl
import pytest
from sqlalchemy import text

from infra.database.connect import check_database, connect, connected, database_errors
from infra.doctor import probe_store
from infra.embedded import ServiceName, full_disk_named, running, status, stop
from infra.errors import DatabaseUnavailableError
from infra.settings import Settings, StoreSettings
from reelabel.errors import DiskFullError, StoreUnavailableError
from reelabel.frames.cache import FrameCache
from reelabel.options import Limits
from reelabel.pool.decode_pool import DecodePool
from reelabel.sampling.options import Sampling
from reelabel.sources.object_store import ObjectStore
from reelabel_engine.protocol import EngineConfig
from tasks.frame_cache.extractor import FrameExtractor
from tasks.manifest.table import open_jobs
from tasks.model.engine.process import EngineProcess
from tasks.model.identity import TINY_MODEL
from tests.clips import make_clip
from tests.model.factories import batch_about, question

__all__ = ["make_clip"]

TINY = EngineConfig(model=str(TINY_MODEL), dtype="float32")


class SmallDisk:
    """A tmpfs."""

    def __init__(self, path, size_mib):
        path.mkdir(parents=True)
        self.path = path
        command = ["mount", "-t", "tmpfs", "-o", f"size={size_mib}m,mode=755", "tmpfs", str(path)]
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
        if mounted.returncode:
            pytest.skip(f"this user may not mount a disk: {mounted.stderr.strip()}")

    def fill(self, *, leave_bytes=0):
        """Leave next to no space."""
        with (self.path / "filler").open("ab", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(1 << 12))
        (self.path / "filler").chmod(0o600)
        with (self.path / "filler").open("ab") as file:
            file.truncate(max(0, file.tell() - leave_bytes))

    def clear(self):
        """Give the space back."""
        (self.path / "filler").unlink()

    def unmount(self):
        subprocess.run(["umount", "--lazy", str(self.path)], check=True)


@pytest.fixture
def small_disk(tmp_path):
    """Mount disks of some MiB, by default below the test's folder."""
    disks = []

    def mount(size_mib, path=None):
        disks.append(SmallDisk(path or tmp_path / f"disk{len(disks)}", size_mib))
        return disks[-1]

    yield mount
    for disk in disks:
        disk.unmount()


def disk_full_error(path):
    """Expect the sentence on a folder."""
    return pytest.raises(
        DiskFullError, match=rf"^The disk of {path}\S* is full( \(.* MiB free.*\))?; free space, then run the same"
    )


@pytest.fixture
def video(make_clip):
    return str(make_clip())


def test_a_full_disk_of_the_frame_cache_is_named(small_disk, video):
    disk = small_disk(4)
    objects = ObjectStore(StoreSettings())
    disk.fill()
    with DecodePool(memory_mib=2048) as pool:
        extractor = FrameExtractor(
            objects=objects,
            cache=FrameCache(objects, disk.path.as_uri()),
            pool=pool,
            sampling=Sampling(),
            limits=Limits(),
        )
        with disk_full_error(disk.path):
            extractor.prepare(video)
        assert [path.name for path in disk.path.rglob("*") if path.is_file()] == ["filler"]

        disk.clear()
        assert not extractor.prepare(video).was_cached
        assert extractor.prepare(video).was_cached


def test_a_full_disk_of_a_store_is_named_before_a_run_begins(small_disk):
    disk = small_disk(4)
    disk.fill()

    with disk_full_error(disk.path):
        probe_store(StoreSettings(uri=disk.path.as_uri()))


def test_a_full_disk_for_temporary_files_of_a_manifest_is_named(small_disk, tmp_path, monkeypatch):
    disk = small_disk(8)
    rows = 200_000
    ids = pl.Series("job_id", [f"job {number} {number * 7919 % rows}" for number in range(rows)])
    frame = pl.DataFrame({"job_id": ids, "video_uri": ids, "prompt": ids}).with_columns(choices=pl.lit(["yes", "no"]))
    frame.write_parquet(tmp_path / "m.parquet")
    monkeypatch.setenv("TMPDIR", str(disk.path))
    monkeypatch.setattr(tempfile, "tempdir", None)

    with disk_full_error(disk.path), open_jobs(str(tmp_path / "m.parquet"), ObjectStore(StoreSettings())):
        pass
    assert list(disk.path.iterdir()) == []


def ids_in(engine):
    with database_errors(), engine.connect() as connection:
        return connection.scalar(text("SELECT count(*) FROM kept WHERE id = ANY(ARRAY[1, 2, 3])"))


def test_a_full_disk_of_postgres_is_named(small_disk, tmp_path):
    disk = small_disk(128, tmp_path / "home")
    settings = Settings(home=disk.path)
    wanted = frozenset({ServiceName.POSTGRES})
    with running(settings, wanted=wanted) as started:
        engine = connect(started.database.model_copy(update={"url": started.database.owner_url}))
        with database_errors(), engine.begin() as connection:
            connection.execute(text("CREATE TABLE kept (id int, body text)"))
            connection.execute(text("INSERT INTO kept SELECT id, '' FROM generate_series(1, 3) id"))
        engine.dispose()

    def write_until_full():
        with running(settings, wanted=wanted) as started:
            engine = connect(started.database.model_copy(update={"url": started.database.owner_url}))
            disk.fill(leave_bytes=1 << 16)
            statement = "INSERT INTO kept SELECT id, repeat(md5(id::text), 100) FROM generate_series(10, 100000) id"
            try:
                with database_errors(), engine.begin() as connection:
                    connection.execute(text(statement))
            finally:
                engine.dispose()

    with pytest.raises(DiskFullError, match=r"disk of .* is full"):
        write_until_full()

    disk.clear()
    with running(settings, wanted=wanted) as started:
        engine = connect(started.database.model_copy(update={"url": started.database.owner_url}))
        assert ids_in(engine) == 3
        engine.dispose()


@pytest.mark.parametrize("leave_bytes", [1 << 19, 9 << 17], ids=["next to nothing", "less than a WAL segment"])
def test_services_that_cannot_start_name_the_disk(small_disk, tmp_path, leave_bytes):
    disk = small_disk(16, tmp_path / "home")
    disk.fill(leave_bytes=leave_bytes)
    settings = Settings(home=disk.path)

    with disk_full_error(disk.path), running(settings, wanted=frozenset({ServiceName.POSTGRES, ServiceName.PREFECT})):
        pass
    assert [path.name for path in disk.path.glob("logs/*")] == ["supervisor.log"]  # none of a service


def test_services_that_have_run_before_do_not_start_on_a_full_disk(small_disk, tmp_path):
    disk = small_disk(160, tmp_path / "home")
    settings, wanted = Settings(home=disk.path), frozenset({ServiceName.POSTGRES})
    with running(settings, wanted=wanted):
        pass
    disk.fill(leave_bytes=9 << 17)

    with disk_full_error(disk.path) as error, running(settings, wanted=wanted):
        pass
    assert "MiB free; the embedded services need " in error.value.message

    disk.clear()
    with running(settings, wanted=wanted):
        pass


def test_a_postgres_that_ends_for_lack_of_a_wal_segment_names_the_disk(small_disk, tmp_path):
    disk = small_disk(160, tmp_path / "home")
    settings, wanted = Settings(home=disk.path), frozenset({ServiceName.POSTGRES})

    def log_until_full():
        with running(settings, wanted=wanted) as started, connected(started.database) as engine:
            disk.fill(leave_bytes=9 << 17)
            # Changes that only its log takes note of.
            statement = "SELECT pg_logical_emit_message(true, 'x', repeat('x', 1000000)) FROM generate_series(1, 100)"
            with database_errors(), engine.begin() as connection:
                connection.execute(text(statement))

    with pytest.raises(DiskFullError, match=r"disk of .* is full"):
        log_until_full()
    with disk_full_error(disk.path) as error, full_disk_named(disk.path):  # what the others hear of it
        raise DatabaseUnavailableError("Postgres failed: the connection was lost.")
    assert "needs 16 for another WAL segment" in error.value.message

    disk.clear()
    with running(settings, wanted=wanted) as started:
        assert check_database(connect(started.database))


def test_a_full_disk_of_the_s3_server_is_named(small_disk, tmp_path):
    disk = small_disk(64, tmp_path / "home")
    settings = Settings(home=disk.path, store={"max_attempts": 1})
    wanted = frozenset({ServiceName.S3})

    def write_until_full():
        with running(settings, wanted=wanted) as started:
            objects = ObjectStore(started.store)
            objects.replace(f"{started.store.uri}/kept", b"kept")
            disk.fill(leave_bytes=1 << 16)
            objects.replace(f"{started.store.uri}/lost", os.urandom(8 << 20))

    with disk_full_error(disk.path):
        write_until_full()

    disk.clear()
    with running(settings, wanted=wanted) as started:
        assert ObjectStore(started.store).read(f"{started.store.uri}/kept") == b"kept"


def test_an_s3_server_that_stays_up_stores_again_after_its_disk_was_full(small_disk, tmp_path, monkeypatch):
    disk = small_disk(288, tmp_path / "home")
    monkeypatch.setenv("REELABEL_HOME", str(disk.path))
    settings = Settings(home=disk.path, store={"max_attempts": 1})
    wanted = frozenset({ServiceName.S3})

    def write_everywhere(started, objects=1):
        for number in range(32 * objects):  # its metadata is in eight databases, by folder
            ObjectStore(started.store).replace(f"{started.store.uri}/{number % 32}/{number}", b"")

    try:
        with running(settings, wanted=wanted, keep=True) as started:
            write_everywhere(started)
            disk.fill()
            with pytest.raises(StoreUnavailableError):
                write_everywhere(started, objects=1000)
            disk.clear()
            with pytest.raises(DiskFullError, match="was full; restart the S3 server"), full_disk_named(disk.path):
                write_everywhere(started)

        with running(settings, wanted=wanted, keep=True) as started:
            write_everywhere(started)
        before = status(disk.path)
        with running(settings, wanted=wanted, keep=True) as started:
            write_everywhere(started)
        assert status(disk.path) == before
    finally:
        stop(disk.path)


def test_a_disk_without_room_for_another_volume_of_the_s3_server_is_named(small_disk, tmp_path, monkeypatch):
    disk = small_disk(160, tmp_path / "home")
    disk.fill(leave_bytes=90 << 20)  # it counts the volumes that fit when it starts, and again from time to time
    settings = Settings(home=disk.path, store={"max_attempts": 1})
    monkeypatch.setenv("REELABEL_HOME", str(disk.path))

    with running(settings, wanted=frozenset({ServiceName.S3})) as started:
        objects = ObjectStore(started.store)
        with disk_full_error(disk.path) as error, full_disk_named(disk.path):  # as a shard does, whose run goes on
            for number in range(20):
                objects.replace(f"{started.store.uri}/{number}", os.urandom(4 << 20))
    assert "needs 128 for another volume" in error.value.message
    free = os.statvfs(disk.path)
    assert free.f_bavail * free.f_frsize > 1 << 20


def test_a_full_disk_for_the_log_of_a_loading_engine_is_named(small_disk):
    disk = small_disk(8)
    disk.fill()
    with EngineProcess(TINY, log_path=disk.path / "engine.log", start_timeout_s=240) as engine:
        engine.start()
        with disk_full_error(disk.path):
            engine.wait_ready()
        disk.clear()
        engine.start()
        assert engine.answer(batch_about(question()))


def test_an_engine_does_without_temporary_files_and_caches(small_disk, tmp_path, monkeypatch):
    disk = small_disk(8)
    for variable in ("TMPDIR", "XDG_CACHE_HOME", "VLLM_CACHE_ROOT", "HF_HOME"):
        monkeypatch.setenv(variable, str(disk.path))
    disk.fill()
    with EngineProcess(TINY, log_path=tmp_path / "engine.log", start_timeout_s=240) as engine:
        engine.start()
        assert engine.answer(batch_about(question()))


def test_a_command_whose_output_does_not_fit_names_the_disk(small_disk, reelabel, tmp_path):
    disk = small_disk(1)
    disk.fill()
    target = disk.path / "x.parquet"
    (tmp_path / "m.csv").write_text("job_id,video_uri,prompt,choices\na,a.mp4,?,yes|no\n")

    completed = reelabel("manifest", "import", str(tmp_path / "m.csv"), str(target))

    assert completed.returncode == 1
    assert completed.stderr.startswith(f"disk_full: The disk of {disk.path} is full")
    assert not target.exists()
