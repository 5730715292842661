"""Videos on a real S3 server, read in parts."""

import gzip
from dataclasses import replace

import numpy as np
import pytest

from infra.settings import StoreSettings, WebSettings
from reelabel.errors import (
    ConfigurationError,
    StoreUnavailableError,
    VideoChangedError,
    VideoRefusedError,
    VideoUnavailableError,
    VideoUnreadableError,
)
from reelabel.extract import extract_local
from reelabel.frames.cache import FrameCache
from reelabel.frames.fetch import VideoReader
from reelabel.options import Limits
from reelabel.pool.decode_pool import DecodePool
from reelabel.sampling.options import Sampling
from reelabel.segment import Segment
from reelabel.sources.object_info import index_key
from reelabel.sources.object_store import ObjectStore
from tests.clips import LONG, blank_packet, flag_as_keyframe
from tests.reelabel.sources.s3_elsewhere import serving_elsewhere
from tests.reelabel.sources.web_server import serving

FOUR = Sampling(num_frames=4)


@pytest.fixture
def clip(make_clip):
    return make_clip(**LONG)


def test_a_remote_video_yields_the_frames_of_the_file_from_a_part_of_its_bytes(reader, put, clip):
    local = extract_local(clip, sampling=FOUR, limits=Limits())

    got = reader.fetch(put(clip), FOUR)

    assert got.frames.method == "index"
    np.testing.assert_array_equal(got.frames.unique, local.unique)
    assert 0 < got.frames.cost.bytes_fetched < clip.stat().st_size / 2
    assert got.frames.cost.fetch_ms > 0


def test_a_store_without_etags_and_ranges_yields_the_frames_of_the_whole_file(reader, clip):
    with serving_elsewhere(etags=False, ranges=False) as server:
        objects = ObjectStore(server.settings)
        objects.replace("s3://bucket/clip.mp4", clip.read_bytes())
        other_reader = replace(reader, objects=objects, cache=FrameCache(objects, server.settings.uri))

        got = other_reader.fetch(objects.stat("s3://bucket/clip.mp4"), FOUR)

    local = extract_local(clip, sampling=FOUR, limits=Limits())
    np.testing.assert_array_equal(got.frames.unique, local.unique)


def test_a_body_that_its_server_compresses_unasked_is_named(reader, clip):
    web = WebSettings(allow_private=True)
    with serving() as server:
        headers = {"Content-Encoding": "gzip"}
        uri = server.add("/clip.mp4", body=gzip.compress(clip.read_bytes()), headers=headers, ranges=False)
        objects = ObjectStore(StoreSettings(), web)

        with pytest.raises(VideoUnreadableError, match="is compressed with gzip"):
            replace(reader, objects=objects, cache=None).fetch(objects.stat(uri), FOUR)


SEGMENT = Segment(9.1, 11.2)


# In Matroska, clusters of 5 s are read, and the first and the last of the file.
@pytest.mark.parametrize(("name", "share"), [("clip.mp4", 0.15), ("clip.mkv", 0.4)])
def test_a_segment_of_a_remote_video_is_read_at_about_its_bytes(reader, put, make_clip, name, share):
    path = make_clip(name, **LONG | {"frames": 480, "gop": 12})
    sampling = Sampling(sampler="fps", fps=2)
    local = extract_local(path, sampling=sampling, limits=Limits(), segment=SEGMENT)

    got = reader.fetch(put(path), sampling, segment=SEGMENT)

    assert (got.frames.method, got.frames.selection.pts.tolist()) == ("seek", local.selection.pts.tolist())
    np.testing.assert_array_equal(got.frames.unique, local.unique)
    assert 0 < got.frames.cost.bytes_fetched < path.stat().st_size * share


def test_a_second_dense_sampler_reads_no_header(reader, put, clip):
    info = put(clip)
    dense = Sampling(sampler="uniform", num_frames=2)
    first = reader.fetch(info, dense)

    again = reader.fetch(info, dense)

    np.testing.assert_array_equal(again.frames.unique, first.frames.unique)
    assert again.frames.cost.bytes_fetched < first.frames.cost.bytes_fetched


DENSE = {"sampling": Sampling(sampler="num_frames", num_frames=9), "segment": Segment(2.6, 4)}


def test_a_frame_that_the_header_takes_for_a_keyframe_is_decoded_from_a_real_one(reader, put, make_clip):
    path = make_clip(**LONG | {"b_frames": 0})
    intact = extract_local(path, limits=Limits(), **DENSE)
    flag_as_keyframe(path, 30)

    got = reader.fetch(put(path), **DENSE)

    assert got.frames.selection.pts.tolist() == intact.selection.pts.tolist()
    np.testing.assert_array_equal(got.frames.unique, intact.unique)


def test_a_remote_video_that_does_not_decode_as_its_header_says_is_downloaded_and_the_note_says_so(
    reader, put, make_clip
):
    path = make_clip(**LONG | {"b_frames": 0})
    blank_packet(path, 30)

    got = reader.fetch(put(path), **DENSE)

    assert got.frames.method == "linear"
    assert "does not decode to the frames" in got.frames.note
    assert got.frames.cost.bytes_fetched > path.stat().st_size


def test_a_second_sampler_does_not_read_the_header_again(reader, put, clip):
    info = put(clip)
    first = reader.fetch(info, FOUR)

    again = reader.fetch(info, FOUR)

    np.testing.assert_array_equal(again.frames.unique, first.frames.unique)
    assert again.frames.cost.bytes_fetched < first.frames.cost.bytes_fetched


def test_the_index_of_an_earlier_version_of_a_video_is_not_used(reader, put, clip, make_clip):
    reader.fetch(put(clip), FOUR)
    replaced = make_clip(**LONG | {"frames": 264})

    got = reader.fetch(put(replaced), FOUR)

    assert (replaced, got.frames.method) == (clip, "index")
    local = extract_local(replaced, sampling=FOUR, limits=Limits())
    np.testing.assert_array_equal(got.frames.unique, local.unique)
    assert got.frames.cost.bytes_fetched < replaced.stat().st_size / 2


def test_a_damaged_index_file_is_replaced(reader, put, clip, objects):
    info = put(clip)
    first = reader.fetch(info, FOUR)
    key = index_key(source_uri=info.uri, fingerprint=info.fingerprint)
    uri = reader.cache.uri_of(key)
    objects.replace(uri, objects.read(uri)[:-9])

    again = reader.fetch(info, FOUR)

    assert again.frames.cost.bytes_fetched == first.frames.cost.bytes_fetched
    assert reader.cache.find_index(key)


def test_a_video_without_an_index_is_downloaded(reader, put, make_clip):
    path = make_clip("clip.ts", size=(160, 120), frames=96, qp="2")

    got = reader.fetch(put(path), FOUR)

    assert got.frames.method == "linear"
    assert got.frames.cost.bytes_fetched >= path.stat().st_size


def test_a_video_replaced_during_reading_is_an_error(reader, put, clip, objects):
    info = put(clip)
    objects.replace(info.uri, clip.read_bytes()[::-1])

    with pytest.raises(VideoChangedError):
        reader.fetch(info, FOUR)


@pytest.fixture
def behind(store_gate, reader, store_settings):
    """The reader, with the store behind the gate."""
    gated = replace(store_settings, endpoint_url=f"http://127.0.0.1:{store_gate.port}")
    objects = ObjectStore(gated)
    return replace(reader, objects=objects, cache=FrameCache(objects, f"{store_settings.uri}/cache"))


def path_of(uri):
    return uri.removeprefix("s3:/")


WAYS = pytest.mark.parametrize("ranges_min_bytes", [0, 1 << 40], ids=["in parts", "whole"])


@WAYS
@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (403, "InvalidObjectState", "is archived"),
        (403, "AccessDenied", "denies access"),
        (400, "KMS.DisabledException", "encryption key"),
    ],
)
def test_a_video_that_can_be_listed_but_not_read_fails_alone(
    behind, store_gate, put, clip, ranges_min_bytes, status, code, message
):
    reader, info = replace(behind, ranges_min_bytes=ranges_min_bytes), put(clip)

    with store_gate.refusing(f"GET {path_of(info.uri)}", status, code):
        assert reader.objects.stat(info.uri) == info
        with pytest.raises(VideoRefusedError, match=rf"{message}.*{code}"):
            reader.fetch(info, FOUR)

    assert len(reader.fetch(info, FOUR).frames.unique) == 4


@WAYS
@pytest.mark.parametrize("code", ["InvalidAccessKeyId", "SignatureDoesNotMatch"])
def test_a_refused_login_is_not_the_fault_of_a_video(behind, store_gate, put, clip, ranges_min_bytes, code):
    info = put(clip)

    with store_gate.refusing(f"GET {path_of(info.uri)}", 403, code), pytest.raises(ConfigurationError, match=code):
        replace(behind, ranges_min_bytes=ranges_min_bytes).fetch(info, FOUR)


@pytest.mark.parametrize("verb", ["GET", "PUT"])
def test_an_inaccessible_cache_is_not_the_fault_of_a_video(behind, store_gate, put, clip, store_settings, verb):
    info = put(clip)

    with (
        store_gate.refusing(f"{verb} {path_of(store_settings.uri)}/cache/", 403, "AccessDenied"),
        pytest.raises(ConfigurationError, match=r"/cache/.*AccessDenied"),
    ):
        behind.fetch(info, FOUR)


@pytest.mark.parametrize("verb", ["GET", "PUT"])
def test_an_outage_of_the_cache_is_not_the_fault_of_a_web_server(store_gate, reader, clip, store_settings, verb):
    gated = {"endpoint_url": f"http://127.0.0.1:{store_gate.port}", "max_attempts": 1}
    store = ObjectStore(replace(store_settings, **gated), WebSettings(allow_private=True))
    behind = replace(reader, objects=store, cache=FrameCache(store, f"{store_settings.uri}/cache"))
    with serving() as server:
        info = store.stat(server.add("/clip", body=clip.read_bytes()))

        with (
            store_gate.refusing(f"{verb} {path_of(store_settings.uri)}/cache/", 503, "SlowDown"),
            pytest.raises(StoreUnavailableError, match=r"/cache/.*SlowDown"),
        ):
            behind.fetch(info, FOUR)

        assert len(behind.fetch(info, FOUR).frames.unique) == 4


def test_a_silent_server_is_blamed_instead_of_the_video(clip):
    web = WebSettings(timeout_s=0.3, total_timeout_s=2, max_attempts=2, allow_private=True)
    store = ObjectStore(StoreSettings(), web)
    with serving() as server, DecodePool(processes=1, timeout_s=1, memory_mib=2048) as pool:
        uri = server.add("/clip", body=clip.read_bytes())
        info = store.stat(uri)
        server.pages["/clip"].pause_s = 2
        reader = VideoReader(objects=store, pool=pool, limits=Limits(), ranges_min_bytes=0)

        with pytest.raises(VideoUnavailableError, match="attempts"):
            reader.fetch(info, FOUR)
