"""What indexes tell of videos on a real S3 server, and what the run that follows saves by it."""

import numpy as np
import pytest

from reelabel.errors import (
    InvalidAnswerError,
    VideoEmptyError,
    VideoMissingError,
    VideoTooLargeError,
    VideoUnreadableError,
)
from reelabel.extract import extract_keyframes
from reelabel.frames.cache import FrameCache
from reelabel.frames.fetch import FrameFetcher
from reelabel.frames.look import IndexReader
from reelabel.index_facts import IndexFacts
from reelabel.limits import Limits
from reelabel.pool.facts import pack_facts, unpack_facts
from reelabel.pool.messages import Request
from reelabel.sampling.options import Sampling
from reelabel.segment import WHOLE

LONG = {"size": (160, 120), "frames": 240, "gop": 24, "b_frames": 2, "qp": "2"}


@pytest.fixture
def reader(objects, store_settings, pool):
    return IndexReader(
        objects=objects,
        pool=pool,
        limits=Limits(),
        cache=FrameCache(objects, f"{store_settings.uri}/cache"),
        ranges_min_bytes=0,
    )


@pytest.fixture
def put(objects, store_settings):
    def put(path):
        uri = f"{store_settings.uri}/{path.name}"
        objects.replace(uri, path.read_bytes())
        return uri

    return put


@pytest.mark.parametrize("place", ["folder", "s3"])
@pytest.mark.parametrize("name", ["clip.mp4", "clip.mkv"])
def test_an_index_tells_what_extraction_finds(reader, put, make_clip, name, place):
    path = make_clip(name, **LONG)

    facts = reader.look(put(path) if place == "s3" else str(path)).facts

    found = extract_keyframes(path, sampling=Sampling())
    np.testing.assert_array_equal(facts.times_ms, found.keyframe_ms)
    assert (facts.codec, facts.width_px, facts.height_px) == ("h264", 160, 120)
    assert (facts.fps, facts.duration_s) == (found.fps, found.duration_s)
    assert (facts.listed, facts.frames) == ("index", 240)


@pytest.mark.parametrize("name", ["clip.mp4", "clip.mkv"])
def test_the_run_that_follows_reads_no_header_again(reader, put, make_clip, name):
    uri, alone = (
        put(make_clip(name, **LONG)),
        FrameFetcher(
            objects=reader.objects,
            cache=None,
            pool=reader.pool,
            sampling=Sampling(),
            limits=Limits(),
            ranges_min_bytes=0,
        ),
    )
    without = alone.fetch(reader.objects.stat(uri))

    seen = reader.look(uri)
    again = reader.look(uri)

    known = reader.cache
    after = FrameFetcher(
        objects=reader.objects, cache=known, pool=reader.pool, sampling=Sampling(), limits=Limits(), ranges_min_bytes=0
    ).fetch(reader.objects.stat(uri))
    assert seen.bytes_read > 0 == again.bytes_read
    np.testing.assert_array_equal(again.facts.times_ms, seen.facts.times_ms)
    assert after.bytes_fetched < without.bytes_fetched
    np.testing.assert_array_equal(after.keyframes.images, without.keyframes.images)


def test_a_table_of_an_earlier_run_answers_without_reading(reader, put, make_clip):
    uri = put(make_clip(**LONG))
    fresh = IndexReader(objects=reader.objects, pool=reader.pool, limits=Limits(), ranges_min_bytes=0).look(uri)
    FrameFetcher(
        objects=reader.objects,
        cache=reader.cache,
        pool=reader.pool,
        sampling=Sampling(),
        limits=Limits(),
        ranges_min_bytes=0,
    ).fetch(reader.objects.stat(uri))

    seen = reader.look(uri)

    assert seen.bytes_read == 0
    np.testing.assert_array_equal(seen.facts.times_ms, fresh.facts.times_ms)
    np.testing.assert_array_equal(seen.facts.sizes_bytes, fresh.facts.sizes_bytes)
    for name in ("codec", "container", "width_px", "height_px", "fps", "duration_s", "frames", "first_ms"):
        assert getattr(seen.facts, name) == getattr(fresh.facts, name)


def test_a_container_without_an_index_is_described_and_says_why(reader, put, make_clip):
    seen = reader.look(put(make_clip("clip.ts", **LONG)))

    assert (seen.facts.codec, seen.facts.listed, seen.facts.times_ms) == ("h264", "not", None)
    assert (seen.facts.note, seen.is_whole_read) == ("the container has no index in its header", True)


@pytest.mark.parametrize(
    ("content", "error"), [(b"", VideoEmptyError), (b"junk" * 9000, VideoUnreadableError), (None, VideoMissingError)]
)
def test_a_broken_video_fails_by_its_code(reader, store_settings, objects, content, error):
    uri = f"{store_settings.uri}/broken.mp4"
    if content is not None:
        objects.replace(uri, content)

    with pytest.raises(error):
        reader.look(uri)


def test_limits_hold_for_a_look(reader, put, make_clip):
    small = IndexReader(objects=reader.objects, pool=reader.pool, limits=Limits(max_frame_pixels=1024))

    with pytest.raises(VideoTooLargeError):
        small.look(put(make_clip(**LONG)))


def ranges_request():
    return Request(
        size_bytes=10, suffix="", sampling=Sampling(), limits=Limits(), segment=WHOLE, threads=1, facts_only=True
    )


@pytest.mark.parametrize(
    "lie",
    [
        pytest.param({"times_ms": np.array([5, 3])}, id="times that jump back"),
        pytest.param({"sizes_bytes": np.array([1, -1])}, id="negative sizes"),
        pytest.param({"listed": "not"}, id="keyframes that are not listed"),
    ],
)
def test_lies_of_a_decoding_process_are_refused(lie):
    honest = {"times_ms": np.array([0, 5]), "sizes_bytes": np.array([1, 1]), "listed": "index"}
    message, descriptor = pack_facts(IndexFacts(**honest | lie), (), ranges_request())

    with pytest.raises(InvalidAnswerError):
        unpack_facts(message, descriptor, max_bytes=10**6)


def test_facts_arrive_unchanged():
    facts = IndexFacts(codec="h264", fps=25.0, listed="index", times_ms=np.array([0, 5]), frames=9)
    message, descriptor = pack_facts(facts, (), ranges_request())

    got = unpack_facts(message, descriptor, max_bytes=10**6)

    assert (got.codec, got.fps, got.frames, got.sizes_bytes) == ("h264", 25.0, 9, None)
    np.testing.assert_array_equal(got.times_ms, [0, 5])
