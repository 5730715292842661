"""What indexes tell of videos on a real S3 server, and what the run that follows saves by it."""

from base64 import b64encode
from dataclasses import replace

import numpy as np
import pytest

from reelabel.errors import (
    VideoEmptyError,
    VideoMissingError,
    VideoTooLargeError,
    VideoUnreadableError,
)
from reelabel.extract import extract_local
from reelabel.frames.fetch import VideoReader
from reelabel.options import Limits
from reelabel.sampling.options import Sampling
from tasks.frame_cache.look import look_at
from tests.clips import LONG


@pytest.mark.parametrize("location", ["folder", "s3"])
@pytest.mark.parametrize("name", ["clip.mp4", "clip.mkv"])
def test_an_index_tells_what_extraction_finds(reader, put, make_clip, name, location):
    path = make_clip(name, **LONG)

    index = look_at(reader, put(path).uri if location == "s3" else str(path)).index

    found = extract_local(path, sampling=Sampling())
    np.testing.assert_array_equal(index.keyframe_ms, found.selection.keyframe_ms)
    info = index.info
    assert (info.codec, info.width_px, info.height_px) == ("h264", 160, 120)
    assert (info.fps, info.duration_s) == (found.selection.fps, found.selection.duration_s)
    assert (index.kind, index.total_frames or info.frames) == ("container", 240)


@pytest.mark.parametrize("name", ["clip.mp4", "clip.mkv"])
def test_the_run_that_follows_reads_no_header_again(reader, put, make_clip, name):
    uri = put(make_clip(name, **LONG)).uri
    without = replace(reader, cache=None).fetch(reader.objects.stat(uri), Sampling())

    seen = look_at(reader, uri)
    again = look_at(reader, uri)

    after = reader.fetch(reader.objects.stat(uri), Sampling())
    assert seen.bytes_read > 0 == again.bytes_read
    np.testing.assert_array_equal(again.index.keyframe_ms, seen.index.keyframe_ms)
    assert after.frames.cost.bytes_fetched < without.frames.cost.bytes_fetched
    np.testing.assert_array_equal(after.frames.unique, without.frames.unique)


def test_a_table_of_an_earlier_run_answers_without_reading(reader, put, make_clip):
    uri = put(make_clip(**LONG)).uri
    fresh = look_at(replace(reader, cache=None), uri)
    reader.fetch(reader.objects.stat(uri), Sampling())

    seen = look_at(reader, uri)

    assert seen.bytes_read == 0
    for name in ("pts", "pos", "size", "keyframe_s", "info", "total_frames", "first_s"):
        np.testing.assert_array_equal(getattr(seen.index, name), getattr(fresh.index, name), name)


def test_a_video_in_its_uri_is_read_whole_and_a_local_one_is_not(reader, make_clip):
    path = make_clip()
    content = path.read_bytes()

    inline = look_at(reader, f"data:video/mp4;base64,{b64encode(content).decode()}")
    local = look_at(reader, str(path))

    assert (inline.is_whole_read, inline.bytes_read) == (True, len(content))
    assert (local.is_whole_read, local.bytes_read) == (False, 0)


def test_a_container_without_an_index_is_described_and_says_why(reader, put, make_clip):
    seen = look_at(reader, put(make_clip("clip.ts", **LONG)).uri)

    assert (seen.index.info.codec, seen.index.is_listed, seen.index.keyframe_ms) == ("h264", False, None)
    assert (seen.index.note, seen.is_whole_read) == ("the container has no index in its header", True)


@pytest.mark.parametrize(
    ("content", "error"), [(b"", VideoEmptyError), (b"junk" * 9000, VideoUnreadableError), (None, VideoMissingError)]
)
def test_a_broken_video_fails_by_its_code(reader, store_settings, objects, content, error):
    uri = f"{store_settings.uri}/broken.mp4"
    if content is not None:
        objects.replace(uri, content)

    with pytest.raises(error):
        look_at(reader, uri)


def test_limits_hold_for_a_look(reader, put, make_clip):
    small = VideoReader(objects=reader.objects, pool=reader.pool, limits=Limits(max_frame_pixels=1024))

    with pytest.raises(VideoTooLargeError):
        look_at(small, put(make_clip(**LONG)).uri)
