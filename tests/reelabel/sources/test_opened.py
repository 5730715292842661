"""Videos opened for decoding: which are read by ranges, what a copy costs, and what errors of a store become."""

import io
import os
import random
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from reelabel.errors import (
    FallbackRequired,
    ObjectChangedError,
    ObjectMissingError,
    ObjectTooLargeError,
    RangesIgnoredError,
    VideoChangedError,
    VideoEmptyError,
    VideoError,
    VideoMissingError,
    VideoRefusedError,
    VideoTooLargeError,
    VideoUnreadableError,
)
from reelabel.options import Limits, WebOptions
from reelabel.result import Frames
from reelabel.sources import opened
from reelabel.sources.object_info import ObjectInfo
from reelabel.sources.object_store import ObjectStore
from reelabel.sources.opened import RANGES_MIN_BYTES, check_size, open_object, open_source, opened_object, stat_video
from reelabel.sources.source import BytesSource
from tests.frame_files import selection_of
from tests.reelabel.sources.web_server import serving

DATA = random.Random(8).randbytes(20_500)


class Ranges:
    """A source of ranges in memory."""

    size_bytes = len(DATA)

    def read(self, start, size):
        return DATA[start : start + size]


class Little(io.BytesIO):
    """A seekable file, which gives three bytes at a time."""

    def read(self, size=-1):
        return super().read(min(size, 3))

    def seekable(self):
        return True


class Unpacked(io.RawIOBase):
    """A file that only wraps another."""

    def __init__(self):
        self.inner = Little(DATA)
        self.seek, self.tell, self.read, self.seekable = (
            self.inner.seek,
            self.inner.tell,
            self.inner.read,
            self.inner.seekable,
        )


def opened_source(source, **options):
    return open_source(source, store=options.pop("store", None), limits=options.pop("limits", Limits()))


def frames_with(**cost):
    selection = selection_of(1, native_width_px=2, native_height_px=2, method="index", decode_ms=0.0, **cost)
    return Frames.of(np.zeros((1, 2, 2, 3), np.uint8), selection)


def content_of(file):
    return os.pread(file.descriptor, file.size_bytes + 1, 0)


def test_a_video_that_ranges_do_not_suffice_for_is_copied_once_and_costs_what_was_read_in_vain(monkeypatch):
    monkeypatch.setattr(opened, "_PIECE_BYTES", 1000)

    def fail_without_index(_):
        error = FallbackRequired("no index")
        error.bytes_fetched, error.frames_decoded = 7, 3
        raise error

    video = opened_source(Ranges())
    by_ranges = video.extract(lambda source: frames_with(bytes_fetched=source.size_bytes), None)
    first = video.extract(fail_without_index, lambda file: frames_with(frames_decoded=len(content_of(file))))
    again = video.extract(
        fail_without_index,
        lambda file: frames_with(fetch_ms=1.0, bytes_fetched=2, frames_decoded=content_of(file) == DATA),
    )
    video.close()

    assert (by_ranges.cost.bytes_fetched, by_ranges.cost.frames_decoded, by_ranges.cost.fetch_ms) == (len(DATA), 0, 0)
    assert (first.cost.bytes_fetched, first.cost.frames_decoded) == (len(DATA) + 7, len(DATA) + 3)
    assert first.cost.fetch_ms > 0
    assert (again.cost.bytes_fetched, again.cost.frames_decoded, again.cost.fetch_ms) == (2, 1, 1.0)


def test_a_source_whose_ranges_are_ignored_is_copied_and_other_errors_are_raised():
    def refuse(_):
        raise RangesIgnoredError("no ranges")

    def fail(_):
        raise ZeroDivisionError

    video = opened_source(Ranges())
    with pytest.raises(ZeroDivisionError):
        video.read(fail, content_of)
    assert video.read(refuse, content_of) == DATA
    with pytest.raises(VideoTooLargeError, match="The 20,500 bytes of the video exceed max_video_bytes"):
        opened_source(Ranges(), limits=Limits(max_video_bytes=len(DATA) - 1)).whole()
    assert content_of(opened_source(Ranges(), limits=Limits(max_video_bytes=len(DATA))).whole()) == DATA


@pytest.mark.parametrize("kind", [Unpacked, Ranges], ids=["file", "ranges"])
def test_ranges_are_read_whole_and_a_file_stays_where_it_is(kind):
    source = kind()
    if isinstance(source, Unpacked):
        source.seek(17)

    ranges = opened_source(source).ranges

    assert ranges.size_bytes == len(DATA)
    assert (ranges.read(100, 50), ranges.read(20_490, 50)) == (DATA[100:150], DATA[20_490:])
    if isinstance(source, Unpacked):
        assert source.tell() == 17


def test_what_is_written_to_an_open_file_is_read_whatever_names_it(tmp_path):
    with (tmp_path / "clip.m4v").open("w+b") as file:
        file.write(DATA)
        video = opened_source(file)
        assert (content_of(video.whole()), video.whole().suffix, video.ranges) == (DATA, ".m4v", None)
    with os.fdopen(os.open(tmp_path / "clip.m4v", os.O_RDONLY), "rb") as file:
        unnamed = opened_source(file)
    assert (content_of(unnamed.whole()), unnamed.whole().suffix) == (DATA, "")
    for each in (video, unnamed):
        each.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            content_of(each.whole())


@pytest.mark.parametrize("source", [5, None, object()])
def test_anything_but_a_video_is_a_type_error(source):
    with pytest.raises(TypeError, match="A video is a path, a URI, bytes, a seekable binary file or a byte source"):
        opened_source(source)


def test_text_and_a_source_without_bytes_are_refused(tmp_path):
    (tmp_path / "a.txt").touch()
    with (tmp_path / "a.txt").open() as file, pytest.raises(TypeError, match="open it with mode 'rb'"):
        opened_source(file)
    empty = type("Empty", (Ranges,), {"size_bytes": 0})()
    with pytest.raises(VideoEmptyError):
        opened_source(empty)


@pytest.mark.parametrize(
    ("size_bytes", "is_by_ranges"), [(RANGES_MIN_BYTES - 1, False), (RANGES_MIN_BYTES, True)], ids=["small", "large"]
)
def test_a_large_remote_video_is_read_by_ranges(size_bytes, is_by_ranges):
    assert RANGES_MIN_BYTES == 2_097_152
    with serving() as server:
        uri = server.add("/clip.mp4", body=bytes(size_bytes))

        video = opened_source(uri, store=ObjectStore(web=WebOptions(allow_private=True)))

        assert (video.ranges is not None, video.file, video.is_local) == (is_by_ranges, None, False)
        assert server.requests("/clip.mp4") == ["bytes=0-0"]
        assert video.whole().size_bytes == video.bytes_fetched == size_bytes
        assert server.requests("/clip.mp4") == ["bytes=0-0", "bytes=0-"]
        video.close()


@pytest.mark.parametrize(
    ("uri", "options", "is_by_ranges"),
    [
        ("{}/clip.mp4", {}, False),
        ("{}/clip.mp4", {"always_by_ranges": True}, True),
        ("data:,clip", {"always_by_ranges": True}, False),
        ("data:,clip", {}, False),
    ],
)
def test_a_video_at_hand_is_read_by_ranges_only_if_asked(tmp_path, uri, options, is_by_ranges):
    (tmp_path / "clip.mp4").write_bytes(b"clip")
    store, uri = ObjectStore(), uri.format(tmp_path)

    video = open_object(store, store.stat(uri), Limits(), **options)

    assert (video.ranges is not None) == is_by_ranges
    assert content_of(video.whole()) == b"clip"
    assert video.bytes_fetched == (4 if uri.startswith("data:") else 0)
    assert (video.fetch_ms > 0) == uri.startswith("data:")
    video.close()


@pytest.mark.parametrize(
    ("size_bytes", "error"),
    [(0, VideoEmptyError), (1, None), (100, None), (101, VideoTooLargeError)],
)
def test_a_video_has_bytes_and_no_more_than_allowed(size_bytes, error):
    info, limits = ObjectInfo(uri="s3://b/k", size_bytes=size_bytes, fingerprint="1"), Limits(max_video_bytes=100)

    if error is None:
        check_size(info, limits)
    else:
        with pytest.raises(error, match="s3://b/k"):
            check_size(info, limits)


@pytest.mark.parametrize(
    ("raised", "error", "message"),
    [
        (ObjectChangedError("changed"), VideoChangedError, "changed"),
        (ObjectMissingError("gone"), VideoMissingError, "gone"),
        (ObjectTooLargeError("large."), VideoTooLargeError, r"large\. See extract\.max_video_bytes\."),
        (VideoUnreadableError("damaged"), VideoUnreadableError, "damaged"),
    ],
)
def test_errors_of_a_store_become_those_of_the_video(tmp_path, raised, error, message):
    (tmp_path / "clip.mp4").write_bytes(b"clip")
    store = ObjectStore()
    info = store.stat(f"{tmp_path}/clip.mp4")

    with pytest.raises(error, match=message), opened_object(store, info, Limits()):
        raise raised


class _NotFoundError(VideoError):
    stage = "fetch"


@pytest.mark.parametrize(
    ("raised", "error"), [(VideoUnreadableError, VideoChangedError), (_NotFoundError, _NotFoundError)]
)
def test_a_video_that_was_written_to_meanwhile_has_changed_if_it_does_not_decode(tmp_path, raised, error):
    path, store = tmp_path / "clip.mp4", ObjectStore()
    path.write_bytes(b"clip")

    def decode(video):
        with video.errors():
            path.write_bytes(b"another")
            raise raised("damaged")

    video = open_object(store, store.stat(str(path)), Limits())
    with pytest.raises(error):
        decode(video)
    video.close()


def test_a_video_that_was_replaced_since_it_was_looked_at_is_not_opened(tmp_path):
    path, store = tmp_path / "clip.mp4", ObjectStore()
    path.write_bytes(b"clip")
    info = store.stat(str(path))
    path.write_bytes(b"other clip")

    with pytest.raises(VideoChangedError):
        open_object(store, info, Limits())
    with pytest.raises(VideoTooLargeError):
        open_object(store, replace(info, size_bytes=5), Limits(max_video_bytes=4))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none.mp4", r"There is no video at .*/none\.mp4; check the path or URI\.$"),
        ("folder", r"/folder is a folder, not a video; name a file in it\.$"),
        ("a" * 300, "There is no video at"),
    ],
)
def test_a_missing_video_is_one_sentence(tmp_path, name, message):
    (tmp_path / "folder").mkdir()

    with pytest.raises(VideoMissingError, match=message):
        stat_video(ObjectStore(), f"{tmp_path}/{name}")
    (tmp_path / "clip.mp4").write_bytes(b"clip")
    assert stat_video(ObjectStore(), f"{tmp_path}/clip.mp4").size_bytes == 4


def test_bytes_of_a_source_are_read_in_pieces_up_to_its_end(tmp_path):
    source = BytesSource(ObjectInfo(uri="data:,", size_bytes=len(DATA), fingerprint="1"), DATA)

    assert source.copy_to(tmp_path / "copy", max_bytes=len(DATA)) == len(DATA)
    assert (tmp_path / "copy").read_bytes() == DATA
    with pytest.raises(ObjectTooLargeError):
        source.copy_to(tmp_path / "none", max_bytes=len(DATA) - 1)
    shorter = BytesSource(source.info, DATA[:-1])
    with pytest.raises(ObjectChangedError):
        shorter.copy_to(tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_a_path_is_bound_by_the_folders_of_its_store_however_it_is_written(tmp_path):
    (tmp_path / "inside").mkdir()
    for name in ("inside/shard.tar#a.mp4", "outside.mp4"):
        (tmp_path / name).write_bytes(b"video")
    store = ObjectStore(allow_roots=(tmp_path / "inside",))

    with closing(open_source(tmp_path / "inside" / "shard.tar#a.mp4", store=store, limits=Limits())) as source:
        assert source.whole().read() == b"video"
    for outside in (tmp_path / "outside.mp4", str(tmp_path / "outside.mp4")):
        with pytest.raises(VideoRefusedError, match=r"outside extract\.allow_roots"):
            open_source(outside, store=store, limits=Limits())
