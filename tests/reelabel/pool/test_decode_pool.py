"""Videos decoded by the processes of a pool: their frames, their errors, and what a pool takes."""

import math
import pickle
import threading

import numpy as np
import pytest

from reelabel.errors import (
    ConfigurationError,
    VideoEmptyError,
    VideoMissingError,
)
from reelabel.extract import extract_local
from reelabel.options import Limits
from reelabel.pool.decode_pool import DecodePool
from reelabel.sampling.options import Sampling
from reelabel.sampling.registry import dense_samplers
from tests.open_descriptors import open_descriptors
from tests.reelabel.pool.videos import LONG, WANTED, pool, remote

__all__ = ["pool"]


def test_frames_of_a_child_equal_those_of_this_process(pool, make_clip):
    clip = make_clip(size=(320, 240))

    found = pool.extract(clip, **WANTED)

    alone = extract_local(clip, **WANTED)
    np.testing.assert_array_equal(found.unique, alone.unique)
    got, expected = found.selection, alone.selection
    for name in ("pts", "time_s", "frame_index", "is_keyframe", "picks", "keyframe_ms"):
        np.testing.assert_array_equal(getattr(got, name), getattr(expected, name))
        assert getattr(got, name).dtype == getattr(expected, name).dtype
    for name in ("fps", "duration_s", "total_frames", "orientation", "method", "note", "sampler", "first_ms"):
        assert getattr(got, name) == getattr(expected, name)


def test_each_sampler_works_in_a_locked_child(pool, make_clip):
    clip, limits = make_clip(frames=96, fps=12, gop=24), Limits()

    for name in dense_samplers():
        sampled = pool.extract(clip, sampling=Sampling(sampler=name), limits=limits)
        expected = extract_local(clip, sampling=Sampling(sampler=name), limits=limits)
        assert sampled.selection.pts[sampled.shown].tolist() == expected.selection.pts[expected.shown].tolist()


def test_frames_are_writable_and_leave_nothing_behind(pool, make_clip):
    clip = make_clip()
    pool.extract(clip, **WANTED)  # the process has started
    descriptors = len(open_descriptors())
    got = pool.extract(clip, **WANTED)

    got.unique[:] = 7

    assert (got.unique == 7).all()
    del got
    assert len(open_descriptors()) <= descriptors


@pytest.mark.parametrize("name", ["clip.mp4", "clip.mkv"])
def test_the_ranges_of_a_header_cross_the_process_boundary_and_are_read_once(pool, make_clip, name):
    source = remote(make_clip(name, **LONG))

    first, header = pool.extract_by_ranges(source, **WANTED)
    again, same = pool.extract_by_ranges(source, **WANTED, known=header)

    np.testing.assert_array_equal(again.unique, first.unique)
    assert same == header
    assert all(source.read(each.start, len(each.data)) == each.data for each in header)
    assert again.cost.bytes_fetched == first.cost.bytes_fetched - sum(len(each.data) for each in header)
    assert first.cost.fetch_ms > 0


def test_an_error_of_a_video_crosses_the_process_boundary(pool, tmp_path):
    path = tmp_path / "empty.mp4"
    path.touch()

    with pytest.raises(VideoEmptyError):
        pool.extract(path, **WANTED)
    with pytest.raises(VideoMissingError, match="There is no video at"):
        pool.extract(tmp_path / "missing.mp4", **WANTED)


class Broken:
    """A video whose source fails in a way of its own, and cannot be sent to another process."""

    size_bytes, max_wait_s = 1_000_000, math.inf

    def __init__(self):
        self.error = ConfigurationError("The login was refused.")
        self.lock = threading.Lock()

    def read(self, *_span):
        raise self.error


def test_an_error_of_a_source_is_raised_unchanged_and_the_source_stays_in_this_process(pool):
    source = Broken()
    with pytest.raises(TypeError):
        pickle.dumps(source)

    with pytest.raises(ConfigurationError) as raised:
        pool.extract_by_ranges(source, **WANTED)

    assert raised.value is source.error


def test_a_video_may_be_a_path_or_its_bytes(pool, make_clip):
    clip = make_clip()
    expected = extract_local(clip)

    for video in (clip, str(clip), clip.read_bytes()):
        np.testing.assert_array_equal(pool.extract(video).unique, expected.unique)
        np.testing.assert_array_equal(extract_local(video).unique, expected.unique)


def test_a_pool_is_not_pickled(pool):
    with pytest.raises(TypeError, match="make one in each process"):
        pickle.dumps(pool)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ({"processes": 0}, "processes is 0; it must be greater than 0"),
        ({"timeout_s": -1.0}, "timeout_s is -1.0"),
        ({"threads": 0}, "threads is 0"),
        ({"sandbox": "required"}, "sandbox is 'required'; it must be auto, require, off"),
    ],
    ids=["processes", "timeout_s", "threads", "sandbox"],
)
def test_an_argument_that_is_not_valid_is_named(argument, message):
    with pytest.raises(ConfigurationError, match=message):
        DecodePool(**argument)
