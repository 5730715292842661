"""Videos in archives: the frames of a file of its own, wherever the archive is, and nothing else of the archive."""

import io
import os
import pickle
import random
import tarfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from infra.settings import StoreSettings, WebSettings
from reelabel.errors import (
    ArchiveUnreadableError,
    ConfigurationError,
    ObjectChangedError,
    VideoChangedError,
    VideoError,
    VideoMissingError,
    VideoRefusedError,
    VideoTooLargeError,
)
from reelabel.extract import extract_local
from reelabel.frames.cache import FrameCache
from reelabel.frames.fetch import VideoReader
from reelabel.options import Limits
from reelabel.sampling.options import Sampling
from reelabel.seal import Seal
from reelabel.sources.archives import RemoteArchive
from reelabel.sources.members import Member, MemberIndex, decode_members, encode_members
from reelabel.sources.object_store import ObjectStore
from reelabel.sources.opened import stat_video
from tasks.frame_cache.extractor import FrameExtractor
from tests.clips import LONG, write_clip
from tests.reelabel.sources.web_server import serving

NOISE = random.Random(4).randbytes(300_000)
SAMPLING = Sampling(num_frames=4)


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    path = tmp_path_factory.mktemp("clip") / "clip.mp4"
    return write_clip(path, **LONG)


@pytest.fixture(scope="module")
def local(clip):
    return extract_local(clip, sampling=SAMPLING, limits=Limits())


def as_tar(data, *, copies=1):
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as archive:
        members = [
            ("before.bin", NOISE),
            *((f"clips/{number}.mp4", data) for number in range(copies)),
            ("after", NOISE),
        ]
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return sink.getvalue()


def as_zip(data, method):
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", method) as archive:
        archive.writestr("before", NOISE)
        archive.writestr("clips/0.mp4", data)
    return sink.getvalue()


def as_parquet(data):
    sink = io.BytesIO()
    parquet.write_table(pa.table({"mp4": [NOISE, data], "id": [1, 2]}), sink)
    return sink.getvalue()


FORMS = {
    "tar": (as_tar, "a.tar", "clips/0.mp4"),
    "stored": (lambda data: as_zip(data, zipfile.ZIP_STORED), "a.zip", "clips/0.mp4"),
    "deflated": (lambda data: as_zip(data, zipfile.ZIP_DEFLATED), "a.zip", "clips/0.mp4"),
    "parquet": (as_parquet, "a.parquet", "column=mp4&row=1"),
}


def reader_of(objects, pool, **options):
    return VideoReader(objects=objects, pool=pool, limits=Limits(), **options)


def fetched(objects, uri, pool, **options):
    return reader_of(objects, pool, **options).fetch(stat_video(objects, uri), SAMPLING)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("location", "ranges_min_bytes"), [("path", 0), ("path", 10**9), ("file", 0), ("s3", 0), ("s3", 10**9), ("http", 0)]
)
def test_frames_of_a_member_are_those_of_the_file(
    form, location, ranges_min_bytes, clip, local, pool, tmp_path, request
):
    pack, name, member = FORMS[form]
    data = pack(clip.read_bytes())

    def frames(objects, archive):
        got = fetched(objects, f"{archive}#{member}", pool, ranges_min_bytes=ranges_min_bytes)
        np.testing.assert_array_equal(got.frames.unique, local.unique)
        np.testing.assert_array_equal(got.frames.selection.pts, local.selection.pts)
        assert got.frames.cost.bytes_fetched <= 1.5 * clip.stat().st_size
        return got

    if location == "http":
        with serving() as server:
            objects = ObjectStore(StoreSettings(), WebSettings(allow_private=True))
            frames(objects, server.add(f"/{name}", body=data))
        return
    if location == "s3":
        objects, root = request.getfixturevalue("objects"), request.getfixturevalue("store_settings").uri
    else:
        objects, root = ObjectStore(), str(tmp_path) if location == "path" else tmp_path.as_uri()
    objects.replace(f"{root}/{name}", data)
    got = frames(objects, f"{root}/{name}")
    if ranges_min_bytes == 0 and form in {"tar", "stored"}:
        assert got.frames.method == "index"
        assert got.frames.cost.bytes_fetched < clip.stat().st_size / 2


class Counting:
    """Counts what is read of the archive."""

    def __init__(self, monkeypatch):
        self.reads = []
        read = RemoteArchive.read

        def counted(archive, start, size):
            self.reads.append((start, size))
            return read(archive, start, size)

        monkeypatch.setattr(RemoteArchive, "read", counted)


def test_a_clip_costs_its_own_header_and_picks_once_the_index_is_known(
    objects, store_settings, clip, pool, monkeypatch
):
    data = as_tar(clip.read_bytes(), copies=60)
    uri, cache = f"{store_settings.uri}/shard.tar", FrameCache(objects, f"{store_settings.uri}/cache")
    objects.replace(uri, data)
    stat_video(ObjectStore(store_settings, archive_indexes=cache), f"{uri}#clips/1.mp4")
    counting = Counting(monkeypatch)
    other_store = ObjectStore(store_settings, archive_indexes=cache)

    got = fetched(other_store, f"{uri}#clips/30.mp4", pool, cache=cache, ranges_min_bytes=0)

    start = data.index(b"clips/30.mp4") + 512
    assert got.frames.cost.bytes_fetched == sum(size for _, size in counting.reads) < clip.stat().st_size / 2
    assert all(start <= at <= at + size <= start + clip.stat().st_size for at, size in counting.reads)
    again = fetched(other_store, f"{uri}#clips/30.mp4", pool, cache=cache, ranges_min_bytes=0)
    assert again.frames.cost.bytes_fetched < got.frames.cost.bytes_fetched  # its keyframe index is cached as well


def test_the_index_is_read_once_by_all_threads(objects, store_settings, monkeypatch):
    uri = f"{store_settings.uri}/shard.tar"
    objects.replace(uri, as_tar(b"v" * 5000, copies=50))
    counting, fresh = Counting(monkeypatch), ObjectStore(store_settings)

    with ThreadPoolExecutor(8) as threads:
        infos = [*threads.map(fresh.stat, [f"{uri}#clips/{number}.mp4" for number in range(50)])]

    assert len({info.fingerprint for info in infos}) == 50
    assert len(counting.reads) <= 54  # one for each member, and those around them
    many = ObjectStore(store_settings).stat_many([info.uri for info in infos] + [f"{uri}#none", "s3://none/a.tar#b"])
    assert sorted(many.values(), key=infos.index) == infos


@pytest.mark.parametrize(
    "forged", [Member("v", 0, 9, 10**9), Member("v", -1, 9, 9), Member("v", 0, -9, 9), Member("v", 0, 2**63 - 1, 2**40)]
)
def test_a_saved_index_is_held_to_the_rule_of_a_fresh_one(tmp_path, forged):
    (tmp_path / "a.tar").write_bytes(as_tar(b"video"))

    with ObjectStore().open(f"{tmp_path}/a.tar") as archive:
        index = decode_members(encode_members(MemberIndex({"v": forged}, "\x1b[2J")), archive)

    assert "\x1b" not in index.damage
    with pytest.raises(ArchiveUnreadableError, match="cut short by the end of the archive"):
        index.find("v", "a.tar")


def test_a_saved_index_without_a_number_is_no_index(tmp_path):
    (tmp_path / "a.tar").write_bytes(as_tar(b"video"))
    data = encode_members(MemberIndex({"v": Member("v", 0, None, 9)}))

    with ObjectStore().open(f"{tmp_path}/a.tar") as archive, pytest.raises(ValueError, match="not the members"):
        decode_members(data, archive)


@pytest.mark.parametrize("harm", ["other key", "damaged", "no key"])
def test_an_index_that_was_tampered_with_is_read_anew(tmp_path, harm):
    objects, uri = ObjectStore(), f"{tmp_path}/a.tar#clips/0.mp4"
    (tmp_path / "a.tar").write_bytes(as_tar(b"video"))
    cache = FrameCache(objects, f"{tmp_path}/cache", seal=Seal(b"key" * 10))

    def stat(seal=cache):
        with ObjectStore(archive_indexes=seal).open(uri) as member:
            assert member.read(0, 5) == b"video"
        return [*(tmp_path / "cache").rglob("*.index")]

    [saved] = stat()
    before = saved.read_bytes()
    if harm == "damaged":
        saved.write_bytes(before[:-9] + b"x" * 9)
    else:
        stat(FrameCache(objects, f"{tmp_path}/cache", seal=Seal(b"other" if harm == "other key" else b"")))
        assert saved.read_bytes() != before

    assert stat() == [saved]
    assert saved.read_bytes() == before


def test_a_member_lies_within_the_allowed_folders_wherever_links_lead(tmp_path, clip, pool):
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for folder in (inside, outside):
        folder.mkdir()
        (folder / "a.tar").write_bytes(as_tar(clip.read_bytes()))
    (inside / "out.tar").symlink_to(outside / "a.tar")
    objects = ObjectStore(allow_roots=(inside,))
    reader = reader_of(objects, pool)

    for path in (outside / "a.tar", inside / "out.tar", inside / ".." / "outside" / "a.tar"):
        with pytest.raises(VideoRefusedError, match=r"outside extract\.allow_roots"):
            stat_video(objects, f"{path}#clips/0.mp4")
        with pytest.raises(VideoRefusedError):
            reader.fetch(stat_video(ObjectStore(), f"{path}#clips/0.mp4"), SAMPLING)
    assert reader.fetch(stat_video(objects, f"{inside}/a.tar#clips/0.mp4"), SAMPLING).frames.shown.any()


def test_a_version_is_found_again_whatever_its_column_is_called():
    sink = io.BytesIO()
    parquet.write_table(pa.table({"a#b": [b"clip"]}), sink)
    store = ObjectStore(StoreSettings(), WebSettings(allow_private=True))

    with serving() as server:
        uri = f"{server.add('/a.parquet', body=sink.getvalue())}#column=a%23b&row=0"
        assert store.read(uri, fingerprint=store.stat(uri).fingerprint) == b"clip"


def test_a_remote_archive_is_not_looked_at_again_to_read_its_members_and_never_mixed_with_another():
    def open_store():
        return ObjectStore(StoreSettings(), WebSettings(allow_private=True))

    with serving() as server:
        archive, store = server.add("/a.tar", body=as_tar(b"video")), open_store()
        info = store.stat(f"{archive}#clips/0.mp4")
        requests = len(server.requests("/a.tar"))

        assert store.read(info.uri, fingerprint=info.fingerprint) == b"video"
        assert len(server.requests("/a.tar")) == requests + 1
        server.pages["/a.tar"].etags = ('"two"',)
        for each in (store, open_store()):
            with pytest.raises(ObjectChangedError):
                each.read(info.uri, fingerprint=info.fingerprint)


@pytest.mark.parametrize("form", FORMS)
def test_a_replaced_archive_is_not_mixed_with_the_one_that_was_looked_at(form, tmp_path, clip, pool):
    pack, name, member = FORMS[form]
    objects, path = ObjectStore(), tmp_path / name
    path.write_bytes(pack(clip.read_bytes()))
    seen = stat_video(objects, f"{path}#{member}")
    path.write_bytes(pack(clip.read_bytes()[:-1] + b"x"))
    os.utime(path, ns=(1, 1))

    with pytest.raises(VideoChangedError, match="was replaced"):
        reader_of(objects, pool).fetch(seen, SAMPLING)
    with pytest.raises(ObjectChangedError):
        objects.read_range(seen.uri, start=0, size=1, fingerprint=seen.fingerprint)
    assert stat_video(objects, seen.uri).fingerprint != seen.fingerprint


def test_nothing_is_read_outside_of_a_member(tmp_path):
    objects, path = ObjectStore(), tmp_path / "a.tar"
    path.write_bytes(as_tar(b"video"))
    info = objects.stat(f"{path}#clips/0.mp4")

    def read(start, size):
        return objects.read_range(info.uri, start=start, size=size, fingerprint=info.fingerprint)

    assert [read(0, 100), read(3, 100), read(5, 1), read(900, 1)] == [b"video", b"eo", b"", b""]
    with objects.open(info.uri) as member:
        assert [member.read(0, 100), member.read(-1, 3)] == [b"video", b""]


@pytest.mark.parametrize(
    ("member", "error", "message"),
    [
        ("a.tar#clips/9.mp4", VideoMissingError, "There is no member clips/9.mp4 in .*a.tar; check its name."),
        ("a.tar#0.mp4", VideoMissingError, "it has clips/0.mp4"),
        ("b.tar#clips/0.mp4", VideoMissingError, "There is no video at .*b.tar#clips/0.mp4"),
        ("a.tar#", VideoRefusedError, "does not name a member; write ARCHIVE#MEMBER"),
        ("a.tar.gz#0.mp4", ArchiveUnreadableError, "compressed as a whole"),
        ("a.zip#x", ArchiveUnreadableError, "central directory cannot be read"),
        ("folder.tar#x", VideoMissingError, "folder.tar#x is a folder, not a video"),
    ],
)
def test_a_name_without_a_member_is_explained(tmp_path, member, error, message):
    (tmp_path / "folder.tar").mkdir()
    (tmp_path / "a.tar").write_bytes(as_tar(b"video"))
    (tmp_path / "a.tar.gz").write_bytes(b"\x1f\x8b")
    (tmp_path / "a.zip").write_bytes(as_tar(b"video"))

    with pytest.raises(error, match=message):
        stat_video(ObjectStore(), f"{tmp_path}/{member}")


def test_a_server_without_ranges_is_named(clip):
    objects = ObjectStore(StoreSettings(), WebSettings(allow_private=True))
    with serving() as server:
        uri = server.add("/a.tar", body=as_tar(clip.read_bytes()), ranges=False)

        with pytest.raises(VideoRefusedError, match="does not send ranges, so no member can be read"):
            stat_video(objects, f"{uri}#clips/0.mp4")


def test_a_member_over_the_limit_is_not_read(tmp_path, clip, pool):
    (tmp_path / "a.tar").write_bytes(as_tar(clip.read_bytes()))
    objects = ObjectStore()
    reader = replace(reader_of(objects, pool), limits=Limits(max_video_bytes=1000))

    with pytest.raises(VideoTooLargeError, match=r"a\.tar#clips/0\.mp4 exceed extract\.max_video_bytes"):
        reader.fetch(stat_video(objects, f"{tmp_path}/a.tar#clips/0.mp4"), SAMPLING)


def test_frame_files_of_members_are_found_again(tmp_path, clip, pool):
    (tmp_path / "a.tar").write_bytes(as_tar(clip.read_bytes(), copies=2))
    objects = ObjectStore()
    cache = FrameCache(objects, f"{tmp_path}/cache")
    extractor = FrameExtractor(objects=objects, cache=cache, pool=pool, sampling=SAMPLING, limits=Limits())

    first, other, again = (extractor.prepare(f"{tmp_path}/a.tar#clips/{number}.mp4") for number in (0, 1, 0))

    assert [each.was_cached for each in (first, other, again)] == [False, False, True]
    assert first.identity.key != other.identity.key
    assert first.provenance.fingerprint != other.provenance.fingerprint


def test_a_store_is_pickled_without_what_it_has_read(tmp_path):
    (tmp_path / "a.tar").write_bytes(as_tar(b"video"))
    objects, uri = ObjectStore(), f"{tmp_path}/a.tar#clips/0.mp4"
    info = objects.stat(uri)

    assert pickle.loads(pickle.dumps(objects)).stat(uri) == info


def test_an_archive_is_read_only(tmp_path):
    with pytest.raises(ConfigurationError, match="a member of an archive, which is read-only"):
        ObjectStore().replace(f"{tmp_path}/a.tar#b", b"")
    assert issubclass(ArchiveUnreadableError, VideoError)
