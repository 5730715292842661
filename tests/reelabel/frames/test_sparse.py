"""Frame files that hold ranges of their video instead of pixels."""

from dataclasses import replace

import numpy as np
import pytest

from reelabel.errors import FrameFileError, VideoError
from reelabel.extract import extract_local
from reelabel.frames import sparse
from reelabel.frames.cache import FrameCache
from reelabel.frames.frame_file import load_frames, read_metadata, with_pixels
from reelabel.frames.sparse import RecordingSource, SparseVideo, check_ranges
from reelabel.options import Limits
from reelabel.sampling.options import Sampling
from reelabel.segment import Segment
from reelabel.sources.sparse_file import CachedRange
from tests.clips import LONG
from tests.factories import make_extractor
from tests.frame_files import encoding_of, with_pixel_rows
from tests.reelabel.frames.rewrite import rewrite


@pytest.fixture
def preparer(tmp_path, pool):
    return make_extractor(tmp_path, pool, pixel_encoding="sparse")


@pytest.fixture
def clip(make_clip):
    return make_clip(**LONG)


def stored(preparer, uri, **options):
    return preparer.cache.read(preparer.prepare(str(uri), **options).identity)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("clip.mp4", {}),
        ("clip.mp4", {"num_frames": 64}),
        ("clip.mp4", {"drop_similar": 0.99}),
        ("clip.mp4", {"max_pixels": 784}),
        ("clip.mp4", {"sampler": "auto"}),
        ("clip.mp4", {"sampler": "uniform", "num_frames": 4}),
        ("clip.mkv", {}),
    ],
)
def test_ranges_decode_to_the_extracted_frames(preparer, pool, make_clip, name, options):
    clip = make_clip(name, **LONG)
    preparer = replace(preparer, sampling=Sampling(**{"num_frames": 4} | options))

    data = stored(preparer, clip)

    expected = extract_local(clip, sampling=preparer.sampling, limits=Limits())
    raw = with_pixels(data, pool, Limits())
    assert (encoding_of(data), encoding_of(raw)) == ("sparse", "raw")
    for got in (load_frames(data, pool=pool), load_frames(raw)):
        np.testing.assert_array_equal(got.unique, expected.unique)
        for column in ("pts", "time_s", "frame_index", "is_keyframe", "picks"):
            np.testing.assert_array_equal(getattr(got.selection, column), getattr(expected.selection, column))


def test_ranges_of_a_segment_decode_to_its_frames(preparer, pool, clip):
    segment = Segment(9.1, 11.2)
    dense = replace(preparer, sampling=Sampling(sampler="fps", fps=2))

    data = stored(dense, clip, segment=segment)

    expected = extract_local(clip, sampling=dense.sampling, limits=Limits(), segment=segment)
    assert encoding_of(data) == "sparse"
    np.testing.assert_array_equal(load_frames(data, pool=pool).unique, expected.unique)


def test_ranges_take_fewer_bytes_than_pixels(preparer, clip):
    scaled = Sampling(num_frames=4, max_pixels=602_112, size_multiple_px=28)
    preparer = replace(preparer, sampling=scaled)
    usual = replace(preparer, pixel_encoding="zstd", cache=FrameCache(preparer.objects, preparer.cache.uri_of("usual")))

    assert len(stored(preparer, clip)) < len(stored(usual, clip))


def test_ranges_of_a_video_on_s3_are_stored_and_nothing_is_printed(
    preparer, pool, clip, objects, store_settings, capfd
):
    uri = f"{store_settings.uri}/clip.mp4"
    objects.replace(uri, clip.read_bytes())
    preparer = replace(preparer, objects=objects, cache=FrameCache(objects, f"{store_settings.uri}/cache"))

    first, again = stored(preparer, uri), stored(replace(preparer, sampling=Sampling(num_frames=3)), uri)

    for data, count in ((first, 4), (again, 3)):
        expected = extract_local(clip, sampling=Sampling(num_frames=count), limits=Limits())
        assert encoding_of(data) == "sparse"
        np.testing.assert_array_equal(load_frames(data, pool=pool).unique, expected.unique)
    assert capfd.readouterr() == ("", "")


def test_frames_that_need_the_whole_video_are_compressed_and_the_file_says_so(preparer, make_clip):
    data = stored(preparer, make_clip("clip.ts", frames=96, gop=24))

    assert encoding_of(data) == "zstd"
    assert "sparse was requested" in read_metadata(data)["encoding_note"]
    assert load_frames(data).unique.shape == load_frames(data).shape


def test_jpeg_takes_precedence_over_ranges(preparer, clip):
    jpeg = replace(preparer, sampling=Sampling(num_frames=4, jpeg_quality=90))

    data = stored(jpeg, clip)

    assert encoding_of(data) == "jpeg"
    assert not read_metadata(data)["encoding_note"]


def test_no_ranges_are_blamed_where_pieces_are_decoded_in_order(preparer, pool, make_clip):
    clip = make_clip("clip.ts", frames=96, gop=24)
    dense, pieces = Sampling(sampler="middles", num_frames=2), pool.in_pieces()
    preparer = replace(preparer, sampling=dense, pieces=pieces)

    files = [stored(preparer, clip, segment=segment) for segment in (Segment(0.0, 2.0), Segment(2.0, 4.0))]
    assert pieces.is_in_order
    pieces.close()

    assert [bool(read_metadata(data)["encoding_note"]) for data in files] == [True, False]


def test_what_a_decoding_process_reads_beyond_the_limit_is_not_kept(preparer, monkeypatch, clip):
    monkeypatch.setattr(sparse, "_MAX_RECORDED_BYTES", 64)
    with preparer.objects.open(str(clip)) as source:
        recording = RecordingSource(source)
        recording.read(0, 64)
        assert [len(each.data) for each in recording.ranges] == [64]
        assert [len(recording.read(start, 8)) for start in (64, 72)] == [8, 8]

    assert recording.ranges == ()
    assert encoding_of(stored(preparer, clip)) == "zstd"


def test_ranges_are_never_decoded_without_a_pool(preparer, clip):
    with pytest.raises(FrameFileError, match="pass a DecodePool"):
        _ = load_frames(stored(preparer, clip)).unique


@pytest.mark.parametrize("seed", range(4))
def test_ranges_are_always_decoded_in_child_processes_which_print_nothing(preparer, pool, clip, seed, capfd):
    data, rng = stored(preparer, clip), np.random.default_rng(seed)
    hostile = with_pixel_rows(data, lambda rows: [rows[0][:4000] + rng.bytes(len(rows[0]) - 4000), *rows[1:]])

    with pytest.raises((FrameFileError, VideoError)):
        with_pixels(hostile, pool, Limits())

    assert encoding_of(with_pixels(data, pool, Limits())) == "raw"
    assert capfd.readouterr() == ("", "")


ONE_RANGE = {"size_bytes": 10**9, "ranges": [[0, 1]], "pixels": ""}


@pytest.mark.parametrize("described", [None, {}, {"ranges": 1}, ONE_RANGE, ONE_RANGE | {"ranges": [[0, -1]]}])
def test_a_file_that_contradicts_its_ranges_is_not_used(preparer, pool, clip, described):
    with pytest.raises(FrameFileError):
        with_pixels(rewrite(stored(preparer, clip), sparse=described), pool, Limits())


def test_ranges_that_decode_to_other_pixels_are_not_used(preparer, pool, clip):
    data = stored(preparer, clip)
    described = read_metadata(data)["sparse"] | {"pixels": "0" * 32}

    with pytest.raises(FrameFileError):
        with_pixels(rewrite(data, sparse=described), pool, Limits())


@pytest.mark.parametrize("ranges", [[(0, b"")], [(-1, b"a")], [(0, b"ab"), (1, b"c")], [(4, b"a"), (0, b"b")]])
def test_ranges_are_in_order_and_do_not_overlap(ranges):
    with pytest.raises(ValueError, match="in order"):
        check_ranges([CachedRange(*each) for each in ranges])


def test_ranges_lie_in_the_video():
    with pytest.raises(ValueError, match="lie in the 3 bytes"):
        SparseVideo(3, (CachedRange(2, b"ab"),))
