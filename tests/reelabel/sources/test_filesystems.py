"""Objects that fsspec reads: its own filesystems in memory, on disk and over HTTP, and packages that are missing."""

import io
import threading
import time
import zipfile
from dataclasses import replace
from socket import create_server

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from reelabel import extract_frames
from reelabel.errors import (
    ConfigurationError,
    ObjectChangedError,
    ObjectMissingError,
    ObjectRefusedError,
    ObjectTooLargeError,
    RangesIgnoredError,
    ReadingEndedError,
    StoreUnavailableError,
    VideoChangedError,
    VideoUnavailableError,
)
from reelabel.frames.fetch import VideoReader
from reelabel.options import Limits, WebOptions
from reelabel.sampling.options import Sampling
from reelabel.sources.object_store import ObjectStore
from reelabel.sources.opened import stat_video
from tasks.frame_cache.look import look_at
from tests.clips import LONG, write_clip
from tests.http_server import Handler, serve

DATA = bytes(range(256)) * 100
URI = "fsspec+memory://bucket/folder/a.bin"
ALLOWED = WebOptions(allow_protocols=("memory", "file", "http"))


@pytest.fixture
def memory():
    filesystem = fsspec.filesystem("memory")
    filesystem.pipe_file("/bucket/folder/a.bin", DATA)
    yield filesystem
    filesystem.rm("/bucket", recursive=True)


@pytest.fixture
def store():
    return ObjectStore(web=ALLOWED)


@pytest.mark.usefixtures("memory")
def test_an_object_is_described_and_read_whole_by_range_and_to_a_file(store, tmp_path):
    info = store.stat(URI)

    assert info.size_bytes == len(DATA)
    assert store.read(URI, fingerprint=info.fingerprint) == DATA
    assert store.read_range(URI, start=300, size=10, fingerprint=info.fingerprint) == DATA[300:310]
    assert store.read_range(URI, start=len(DATA) - 4, size=10, fingerprint=info.fingerprint) == DATA[-4:]
    assert store.download(URI, tmp_path / "copy", fingerprint=info.fingerprint) == len(DATA)
    assert (tmp_path / "copy").read_bytes() == DATA


def test_an_object_that_was_replaced_is_another_version(store, memory):
    info = store.stat(URI)
    with store.open(URI, known=info) as source:
        assert source.read(0, 4) == DATA[:4]
        memory.pipe_file("/bucket/folder/a.bin", DATA[::-1])
        with pytest.raises(ObjectChangedError, match="was replaced"):
            source.check_unchanged()
    with pytest.raises(ObjectChangedError, match="was replaced"):
        store.read(URI, fingerprint=info.fingerprint)


def test_an_archive_that_was_replaced_is_not_mixed_with_another(store, memory):
    def pack(name):
        sink = io.BytesIO()
        with zipfile.ZipFile(sink, "w") as archive:
            archive.writestr(name, DATA)
        return sink.getvalue()

    memory.pipe_file("/bucket/a.zip", pack("a.mp4"))
    info = store.stat("fsspec+memory://bucket/a.zip#a.mp4")
    assert store.read(info.uri, fingerprint=info.fingerprint) == DATA

    memory.pipe_file("/bucket/a.zip", pack("b.mp4"))

    for each in (store, ObjectStore(web=ALLOWED)):
        with pytest.raises(ObjectChangedError, match="was replaced"):
            each.read(info.uri, fingerprint=info.fingerprint)


@pytest.mark.usefixtures("memory")
def test_what_is_missing_a_folder_or_too_large_is_refused(store, tmp_path):
    with pytest.raises(ObjectMissingError, match="no object at"):
        store.stat("fsspec+memory://bucket/none.bin")
    with pytest.raises(ObjectMissingError, match="is a folder"):
        store.stat("fsspec+memory://bucket/folder")
    with pytest.raises(ObjectTooLargeError, match="exceeds the limit"):
        store.download(URI, tmp_path / "copy", max_bytes=len(DATA) - 1)
    assert not (tmp_path / "copy").exists()


@pytest.mark.usefixtures("memory")
def test_only_protocols_and_buckets_that_are_allowed_are_read(tmp_path):
    (tmp_path / "secret").write_bytes(b"secret")
    with pytest.raises(ConfigurationError, match=r"web\.allow_protocols does not list file"):
        ObjectStore().stat(f"fsspec+file://{tmp_path}/secret")
    with pytest.raises(ObjectMissingError):  # not a chain of filesystems
        ObjectStore(web=ALLOWED).stat(f"fsspec+memory://bucket/a::file://{tmp_path}/secret")
    with pytest.raises(ConfigurationError, match="none of the allowed buckets"):
        ObjectStore(web=ALLOWED, buckets=("other",)).stat(URI)
    assert ObjectStore(web=ALLOWED, buckets=("bucket",)).stat(URI).size_bytes == len(DATA)


def test_a_package_that_is_missing_is_named(store):
    with pytest.raises(ConfigurationError, match="gcsfs"):
        store.stat("gs://bucket/a.mp4")


class _Account(MemoryFileSystem):
    """A filesystem that needs an account."""

    protocol = "account"

    def __init__(self, account=None):
        if not account:
            raise ValueError("no account")
        super().__init__()

    @staticmethod
    def _get_kwargs_from_urls(address):
        return {"account": address.partition("?")[2]}


@pytest.fixture
def account():
    fsspec.register_implementation("account", _Account, clobber=True)
    return "fsspec+account://bucket/a.bin"


def test_a_filesystem_that_is_unknown_or_lacks_an_account_is_no_outage(account):
    store = ObjectStore(web=WebOptions(allow_protocols=("unknown", "account")))

    with pytest.raises(ConfigurationError, match=r"cannot be read: Protocol not known: unknown"):
        store.stat("fsspec+unknown://bucket/a.bin")
    with pytest.raises(ConfigurationError, match="cannot be read: no account"):
        store.stat(account)


def test_an_object_cannot_be_written(store):
    with pytest.raises(ConfigurationError, match="is read-only"):
        store.replace(URI, b"")


def test_a_video_on_a_filesystem_gives_the_same_frames_as_the_file(store, tmp_path):
    path = write_clip(tmp_path / "clip.mp4", frames=90)
    from_file = extract_frames(path, "uniform", num_frames=8)
    from_filesystem = extract_frames(f"fsspec+file://{path}", "uniform", num_frames=8, store=store)

    assert from_filesystem.index.tolist() == from_file.index.tolist()
    assert (from_filesystem.images == from_file.images).all()


@pytest.mark.parametrize(
    "work", [lambda reader, info: reader.fetch(info, Sampling()), lambda reader, info: look_at(reader, info.uri, info)]
)
def test_a_video_that_is_cut_short_while_it_is_read_has_changed(store, memory, pool, tmp_path, work):
    video = write_clip(tmp_path / "clip.mp4", **LONG | {"b_frames": 0}).read_bytes()
    memory.pipe_file("/bucket/clip.mp4", video)
    info = store.stat("fsspec+memory://bucket/clip.mp4")
    memory.pipe_file("/bucket/clip.mp4", video[:100])
    reader = VideoReader(objects=store, pool=pool, limits=Limits(), ranges_min_bytes=0)

    with pytest.raises(VideoChangedError, match="was replaced while it was being read"):
        work(reader, info)


class _Handler(Handler):
    """Sends DATA with a version and without ranges; refuses everything below /refused."""

    def do_GET(self):
        version = {} if "timeless" in self.path else {"ETag": '"one"'}
        self.respond(403 if self.path.startswith("/refused") else 200, DATA, **version)

    do_HEAD = do_GET


@pytest.fixture
def http():
    with serve(_Handler) as server:
        yield f"fsspec+{server.url}"


def test_a_server_without_ranges_is_read_whole(store, http):
    info = store.stat(f"{http}/a.bin")
    with pytest.raises(RangesIgnoredError):
        store.read_range(info.uri, start=5, size=10, fingerprint=info.fingerprint)
    assert store.read_part(info.uri, start=5, size=10, fingerprint=info.fingerprint) == DATA[5:15]


def test_an_object_whose_versions_cannot_be_distinguished_is_refused(store, http):
    with pytest.raises(ConfigurationError, match="neither a version nor a time"):
        store.stat(f"{http}/timeless.bin")


def test_refused_credentials_are_named_as_such(store, http):
    with pytest.raises(ObjectRefusedError, match="may not be read with these credentials"):
        store.read_range(f"{http}/refused.bin", start=0, size=1, fingerprint="")


@pytest.fixture
def silent():
    """URI at a server that accepts connections and never answers."""
    with create_server(("127.0.0.1", 0)) as server:
        yield f"fsspec+http://127.0.0.1:{server.getsockname()[1]}/a.mp4"


def test_a_filesystem_that_does_not_answer_costs_no_more_than_the_time_limit(silent):
    store = ObjectStore(web=replace(ALLOWED, total_timeout_s=0.5))
    with pytest.raises(StoreUnavailableError, match=r"longer than web\.total_timeout_s"):
        store.stat(silent)
    with pytest.raises(VideoUnavailableError, match=r"longer than web\.total_timeout_s"):
        stat_video(store, silent)


def test_a_request_that_is_cancelled_ends(store, silent):
    threading.Timer(0.5, store.cancel).start()
    started_s = time.monotonic()
    with pytest.raises(ReadingEndedError):
        store.stat(silent)
    assert time.monotonic() - started_s < 60
