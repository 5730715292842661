import base64
import resource
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from tempfile import gettempdir

import pytest
from PIL import Image

from infra.settings import StoreSettings, WebSettings
from reelabel.coverage import CoverageThresholds
from reelabel.errors import (
    DecodersClosedError,
    DiskUnavailableError,
    ObjectMissingError,
    TransientError,
    VideoEmptyError,
    VideoMissingError,
    VideoRefusedError,
    VideoTooLargeError,
    VideoUnavailableError,
    VideoUnreadableError,
)
from reelabel.frames import cache_key
from reelabel.frames.cache import FrameCache
from reelabel.frames.cache_key import FrameIdentity
from reelabel.options import Limits
from reelabel.pool.decode_pool import DecodePool
from reelabel.sampling.options import Sampling
from reelabel.segment import Segment
from reelabel.sources import web
from reelabel.sources.object_store import ObjectStore
from tasks.frame_cache.extractor import KeyedLocks
from tests.clips import blank_packet
from tests.frame_files import encoding_of
from tests.reelabel.sources.web_server import serving


def test_a_picked_frame_that_is_missing_is_reported_now_and_from_the_cache(preparer, make_clip):
    path = make_clip("clip.mkv", gop=1, codec="mjpeg", pix_fmt="yuvj420p")
    blank_packet(path, 20)
    every = replace(preparer, sampling=Sampling(sampler="uniform", num_frames=48))

    first, second = every.prepare(str(path)), every.prepare(str(path))

    assert (first.provenance.frames_used, second.was_cached) == (47, True)
    for each in (first, second):
        assert "1 broken frame left out" in each.provenance.decode_note


def test_the_second_time_nothing_is_extracted(preparer, make_clip):
    uri = str(make_clip())

    first, second = preparer.prepare(uri), preparer.prepare(uri)

    assert (first.was_cached, second.was_cached) == (False, True)
    assert first.identity == second.identity
    assert 0 < second.lookup_ms < 60_000
    extracted, cached = first.provenance, second.provenance
    spent = {"bytes_fetched", "decode_ms", "cache_write_ms"}
    assert min(getattr(extracted, name) for name in spent) > 0 == max(getattr(cached, name) for name in spent)
    facts = {name for name in asdict(extracted) if not name.endswith("_ms")} - spent
    assert {name: getattr(cached, name) for name in facts} == {name: getattr(extracted, name) for name in facts}
    assert (extracted.frames_used, extracted.keyframes_in_file, extracted.frames_decoded) == (4, 4, 4)
    assert (extracted.longest_gap_s, extracted.keyframe_coverage) == (1.0, 0.875)


def test_threads_that_need_the_same_frames_decode_them_once(preparer, make_clip):
    uri = str(make_clip())

    with ThreadPoolExecutor(4) as threads:
        prepared = [*threads.map(preparer.prepare, [uri] * 4)]

    assert sorted(each.was_cached for each in prepared) == [False, True, True, True]
    assert not preparer.locks._locks


def test_a_faulty_video_is_decoded_once_if_faults_are_cached(preparer, tmp_path):
    broken = [tmp_path / f"{name}.mp4" for name in "abc"]
    for each in broken:
        each.write_text("no video")
    with DecodePool(processes=1) as pool:
        keeping = replace(preparer, pool=pool, locks=KeyedLocks(keep_faults=2))
        first = [fault_of(keeping, each) for each in broken]

    # Only the first one is decoded again, for which the pool is closed.
    again = [fault_of(keeping, each) for each in broken]

    assert [type(each) for each in again] == [DecodersClosedError, VideoUnreadableError, VideoUnreadableError]
    assert [str(each) for each in again[1:]] == [str(each) for each in first[1:]]
    assert [each.fingerprint for each in again[1:]] == [each.fingerprint for each in first[1:]]
    assert again[1].fingerprint


def fault_of(preparer, path):
    with pytest.raises((VideoUnreadableError, DecodersClosedError)) as raised:
        preparer.prepare(str(path))
    return raised.value


def test_frame_files_stay_in_memory_until_they_are_read_the_newest_that_fit(preparer, make_clip, tmp_path):
    uris = [str(make_clip(f"{name}.mp4")) for name in "ab"]
    files = [preparer.cache.read(preparer.prepare(uri).identity) for uri in uris]
    cache = FrameCache(preparer.objects, f"file://{tmp_path}/cache", keep_bytes=len(files[0]) * 3 // 2)
    first, second = (replace(preparer, cache=cache).prepare(uri).identity for uri in uris)
    cache.write(second, files[1])
    for each in (first, second):
        preparer.objects.remove(cache.uri_of(each.key))

    assert cache.read(second) == files[1]
    for each in (first, second):
        with pytest.raises(ObjectMissingError):
            cache.read(each)


def test_coverage_follows_the_thresholds_whatever_is_cached(preparer, make_clip):
    uri = str(make_clip())
    strict = replace(preparer, thresholds=CoverageThresholds(min_keyframes=5, coverage_radius_s=0.2))

    good, bad = preparer.prepare(uri), strict.prepare(uri)

    assert bad.was_cached
    assert (good.provenance.coverage, bad.provenance.coverage) == ("", "few_keyframes,low_coverage")


@pytest.mark.parametrize("pixel_encoding", ["zstd", "sparse"])
def test_each_segment_of_a_video_has_its_own_frame_file(preparer, make_clip, pixel_encoding):
    preparer, uri = replace(preparer, pixel_encoding=pixel_encoding), str(make_clip(frames=48, gop=12))
    whole = preparer.prepare(uri)
    part = preparer.prepare(uri, segment=Segment(0.5, 2.5))

    again = preparer.prepare(uri, segment=Segment(0.5, 2.5))

    assert again.was_cached
    assert (again.identity, again.provenance.decode_note) == (part.identity, part.provenance.decode_note)
    assert part.identity != whole.identity
    found = preparer.cache.find(part.identity).selection
    assert found.time_s.tolist() == [1.0, 2.0]
    assert (found.segment, found.starts_s, found.keyframes_in_file) == (Segment(0.5, 2.5), 0.5, 4)
    between = preparer.prepare(uri, segment=Segment(1.2, 1.5)).provenance
    assert between.decode_note.startswith("no keyframe in the segment")


def test_a_video_is_no_image_whether_its_first_frame_is_cached_or_not(preparer, make_clip):
    uri = str(make_clip())

    for _ in range(2):
        with pytest.raises(VideoUnreadableError, match="is a video, not an image; give it as a video") as raised:
            preparer.prepare(uri, shown="image")
        assert raised.value.fingerprint
        replace(preparer, sampling=Sampling(num_frames=1)).prepare(uri)


def test_an_image_is_a_video_of_one_frame(preparer, tmp_path):
    Image.new("RGB", (64, 48), "red").save(tmp_path / "red.png")

    first, second = (preparer.prepare(str(tmp_path / "red.png"), shown="image") for _ in range(2))

    assert (first.provenance.frames_used, first.was_cached, second.was_cached) == (1, False, True)
    assert first.frame_bytes == second.frame_bytes == 64 * 48 * 3
    assert second.rewritten == ""


def test_a_replaced_video_is_extracted_again(preparer, make_clip):
    path = make_clip()
    first = preparer.prepare(str(path))

    make_clip(frames=60)
    second = preparer.prepare(str(path))

    assert second.identity != first.identity
    assert not second.was_cached


def test_frames_that_an_earlier_version_has_decoded_are_extracted_again(preparer, make_clip, monkeypatch):
    uri = str(make_clip())
    with monkeypatch.context() as earlier:
        earlier.setattr(cache_key, "_FRAMES_VERSION", "1")
        before = preparer.prepare(uri)

    now = preparer.prepare(uri)

    assert (before.was_cached, now.was_cached) == (False, False)
    assert now.identity.key != before.identity.key


def test_a_damaged_frame_file_is_regenerated(preparer, make_clip):
    uri = str(make_clip())
    identity = preparer.prepare(uri).identity
    path = Path(preparer.cache.uri_of(identity.key).removeprefix("file://"))
    whole = path.read_bytes()
    path.write_bytes(whole[:-200])

    again = preparer.prepare(uri)

    assert not again.was_cached
    assert preparer.cache.find(identity) is not None


@pytest.mark.parametrize("encoding", ["raw", "sparse"])
def test_a_file_with_another_lossless_encoding_is_used_as_it_is(preparer, make_clip, encoding):
    uri = str(make_clip())
    first = preparer.prepare(uri)

    second = replace(preparer, pixel_encoding=encoding).prepare(uri)

    assert second.was_cached
    assert second.identity == first.identity
    assert encoding_of(preparer.cache.read(second.identity)) == "zstd"


def test_a_missing_video_is_named(preparer, tmp_path):
    with pytest.raises(VideoMissingError, match=r"gone\.mp4"):
        preparer.prepare(str(tmp_path / "gone.mp4"))


def test_a_name_that_is_too_long_is_a_missing_video(preparer):
    with pytest.raises(VideoMissingError):
        preparer.prepare(f"/{'x' * 300}.mp4")


def test_an_empty_video_is_named(preparer, tmp_path):
    (tmp_path / "empty.mp4").touch()
    with pytest.raises(VideoEmptyError):
        preparer.prepare(str(tmp_path / "empty.mp4"))


def test_a_text_file_is_named(preparer, tmp_path):
    (tmp_path / "text.mp4").write_text("no video")
    with pytest.raises(VideoUnreadableError):
        preparer.prepare(str(tmp_path / "text.mp4"))


def test_a_video_above_the_size_limit_is_not_read(preparer, make_clip):
    with pytest.raises(VideoTooLargeError):
        replace(preparer, limits=Limits(max_video_bytes=100)).prepare(str(make_clip()))


@pytest.fixture
def server():
    with serving() as server:
        yield server


def from_the_web(preparer, **settings):
    return replace(preparer, objects=ObjectStore(StoreSettings(), WebSettings(**settings)))


def test_web_and_inline_videos_yield_the_same_frames_as_files(preparer, make_clip, server):
    path = make_clip()
    on_web = server.add("/clip.mp4", body=path.read_bytes()) + "?signature=secret"
    in_uri = f"data:video/mp4;base64,{base64.b64encode(path.read_bytes()).decode()}"

    preparer = from_the_web(preparer, allow_private=True)
    files = [preparer.cache.find(preparer.prepare(uri).identity) for uri in (str(path), on_web, in_uri)]

    assert (files[0].images == files[1].images).all()
    assert (files[0].images == files[2].images).all()
    assert files[1].source_uri == f"{server.url}/clip.mp4?..."
    assert len(files[2].source_uri) < 80


def test_a_video_under_a_new_signature_or_without_one_is_not_decoded_again(preparer, make_clip, server):
    uri = server.add("/signed.mp4", body=make_clip().read_bytes())
    preparer = from_the_web(preparer, allow_private=True)
    signed = [f"{uri}?Expires={number}&Signature={number}&Key-Pair-Id=k" for number in (1, 2)]

    prepared = [preparer.prepare(each) for each in (*signed, uri)]
    assert [each.was_cached for each in prepared] == [False, True, True]
    server.pages["/signed.mp4"].etags = ('"another"',)
    assert not preparer.prepare(signed[0]).was_cached


def test_a_video_on_a_private_address_is_refused(preparer, server):
    uri = server.add("/clip.mp4", body=b"secret")

    with pytest.raises(VideoRefusedError, match="not on the public internet"):
        preparer.prepare(uri)


def test_a_failing_web_server_fails_only_its_own_videos(preparer, server):
    uri = server.add("/clip.mp4", body=b"x", statuses=(503,) * 100)

    with pytest.raises(VideoUnavailableError):
        from_the_web(preparer, allow_private=True, max_attempts=1).prepare(uri)


@contextmanager
def full_disk():
    """No file may grow past 1 KB: not for longer than necessary, since pytest may print to one."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture(params=["s3", "web", "data"])
def remote_uri(request, make_clip):
    """A video that is copied before it is decoded, and the settings of its store."""
    data = make_clip().read_bytes()
    if request.param == "s3":
        settings = request.getfixturevalue("store_settings")
        ObjectStore(settings).replace(f"{settings.uri}/clip.mp4", data)
        return f"{settings.uri}/clip.mp4", settings
    if request.param == "web":
        return request.getfixturevalue("server").add("/clip.mp4", body=data), StoreSettings()
    return f"data:video/mp4;base64,{base64.b64encode(data).decode()}", StoreSettings()


def test_a_full_disk_is_a_transient_fault_not_one_of_the_video(preparer, remote_uri):
    uri, settings = remote_uri
    preparer = replace(preparer, objects=ObjectStore(settings, WebSettings(allow_private=True)))

    message = f"temporary folder {gettempdir()} .*TMPDIR"
    with pytest.raises(DiskUnavailableError, match=message) as raised, full_disk():
        preparer.prepare(uri)
    assert isinstance(raised.value, TransientError)


def test_a_video_that_grows_past_the_limit_during_reading_is_too_large(preparer, server, monkeypatch):
    monkeypatch.setattr(web, "_MAX_UNSIZED_BYTES", 40_000)
    uri = server.add("/clip.mp4", body=bytes(50_000), sized=False, ranges=False)

    with pytest.raises(VideoTooLargeError, match="no length"):
        from_the_web(preparer, allow_private=True).prepare(uri)


def test_local_videos_must_be_in_the_allowed_folders_even_through_links(preparer, make_clip, tmp_path):
    outside = make_clip()
    inside = tmp_path / "allowed"
    inside.mkdir()
    (inside / "link.mp4").symlink_to(outside)
    (inside / "clip.mp4").write_bytes(outside.read_bytes())
    preparer = replace(preparer, objects=ObjectStore(allow_roots=(inside,)))

    assert preparer.prepare((inside / "clip.mp4").as_uri()).provenance.frames_used == 4
    for uri in (str(outside), outside.as_uri(), f"{inside}/link.mp4", f"{inside}/../{outside.name}"):
        with pytest.raises(VideoRefusedError, match=r"extract\.allow_roots"):
            preparer.prepare(uri)


def test_keys_depend_on_everything_that_affects_pixels():
    common = {"source_uri": "s3://b/v.mp4", "fingerprint": "e1", "sampling": Sampling()}

    keys = {
        FrameIdentity(**common),
        FrameIdentity(**common | {"fingerprint": "e2"}),
        FrameIdentity(**common | {"source_uri": "s3://b/w.mp4"}),
        FrameIdentity(**common | {"sampling": Sampling(num_frames=8)}),
        FrameIdentity(**common | {"sampling": Sampling(jpeg_quality=90)}),
        FrameIdentity(**common | {"segment": Segment(1.0, 2.0)}),
    }

    assert len(keys) == 6
    assert FrameIdentity(**common) == FrameIdentity(**common)


def test_keys_depend_on_the_version_of_pillow_where_it_encodes_the_frames():
    common = {"source_uri": "s3://b/v.mp4", "fingerprint": "e1"}

    plain, jpeg = (FrameIdentity(**common, sampling=Sampling(jpeg_quality=quality)) for quality in (None, 90))

    assert jpeg.facts()["decoder"] == plain.facts()["decoder"] | {"pillow": version("pillow")}
