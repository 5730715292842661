import json
import pickle
from dataclasses import fields, replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infra.settings import StoreSettings
from infra.settings.types import fields_of
from reelabel.errors import FrameFileError, VideoTooLargeError
from reelabel.frames.cache_key import FrameIdentity
from reelabel.frames.frame_file import read_frames, write_frames
from reelabel.frames.pixels import ExactEncoding
from reelabel.index import NO_PTS
from reelabel.result import Frames, Selection
from reelabel.sampling.options import Sampling
from reelabel.seal import BLANK
from reelabel.sources.object_info import SCHEMA_VERSION
from tests.frame_files import LOSSLESS, encoding_of, frame_file_of
from tests.reelabel.frames.rewrite import rewrite


def encode(keyframes, encoding="zstd", **sampling):
    return frame_file_of(keyframes, source_uri="s3://b/v.mp4", sampling=Sampling(**sampling), encoding=encoding)


@pytest.fixture(params=[*LOSSLESS, "jpeg"])
def data(keyframes, request):
    """A frame file of every encoding."""
    if request.param == "jpeg":
        return encode(keyframes, jpeg_quality=90)
    return encode(keyframes, request.param)


@pytest.mark.parametrize("lossless", LOSSLESS)
def test_losslessly_written_frames_are_read_back_unchanged(keyframes, lossless):
    got = read_frames(encode(keyframes, lossless))

    np.testing.assert_array_equal(got.unique, keyframes.unique)
    for each in fields(Selection):
        np.testing.assert_array_equal(getattr(got.selection, each.name), getattr(keyframes.selection, each.name))
    assert (got.source_uri, got.shape) == ("s3://b/v.mp4", keyframes.unique.shape)


def test_slices_decode_the_pixels_once(keyframes):
    frames = read_frames(encode(keyframes))

    slices = [frames[start:] for start in (0, 1, 2, 3)]

    assert [len(each.images) for each in slices] == [4, 3, 2, 1]
    assert all(each.unique is frames.unique for each in slices)


@pytest.mark.parametrize("is_stored", [False, True], ids=["decoded", "frame file"])
def test_frames_can_be_pickled(keyframes, is_stored):
    frames = (read_frames(encode(keyframes)) if is_stored else keyframes)[1:]

    got = pickle.loads(pickle.dumps(frames))

    np.testing.assert_array_equal(got.images, frames.images)
    assert (got.time_s.tolist(), got.info, repr(got)) == (frames.time_s.tolist(), frames.info, repr(frames))


def test_some_of_the_frames_can_be_written_and_read_back(keyframes):
    some = keyframes[1:3]

    got = read_frames(write_frames(some, FrameIdentity(sampling=Sampling())))

    assert (got.shown.tolist(), got.time_s.tolist()) == ([0, 1], [0.0, 1.0])
    np.testing.assert_array_equal(got.images, keyframes.unique[:2])


def test_a_frame_file_without_frames_is_refused(keyframes):
    assert len(keyframes[:0].images) == 0

    with pytest.raises(ValueError, match="no frame to write"):
        write_frames(keyframes[:0], FrameIdentity(sampling=Sampling()))


@pytest.mark.parametrize("shape", [(2, 28, 56, 3), (3, 28, 56, 4), (3, 0, 56, 3), (3, 28, 56)])
def test_pixels_of_another_shape_are_no_frames(keyframes, shape):
    with pytest.raises(ValueError, match=r"images must be \(3, H, W, 3\)"):
        Frames.of(np.zeros(shape, np.uint8), keyframes.selection)


@given(st.integers(1, 3), st.integers(1, 9), st.integers(1, 9), st.integers(0, 2**32 - 1))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@pytest.mark.parametrize("lossless", LOSSLESS)
def test_frames_of_any_size_are_read_back(keyframes, lossless, count, height, width, seed):
    images = np.random.default_rng(seed).integers(0, 256, (count, height, width, 3), np.uint8)
    known = keyframes.selection
    columns = {name: getattr(known, name)[:count] for name in ("pts", "time_s", "frame_index", "is_keyframe")}
    some = Frames.of(images, replace(known, picks=np.arange(count), **columns))

    np.testing.assert_array_equal(read_frames(encode(some, lossless)).unique, images)


def test_jpeg_frames_are_close_and_smaller(keyframes):
    ramp = np.linspace(0, 255, keyframes.unique.size).reshape(keyframes.unique.shape).astype(np.uint8)
    smooth = Frames.of(ramp, keyframes.selection)

    coarse, fine = (encode(smooth, jpeg_quality=quality) for quality in (30, 95))

    assert encoding_of(fine) == "jpeg"
    assert np.abs(read_frames(fine).unique.astype(int) - ramp).max() < 8
    assert len(coarse) < len(fine) < len(encode(smooth, "raw"))


def test_a_frame_larger_than_jpeg_allows_is_too_large(keyframes):
    long = Frames.of(np.zeros((3, 1, 65_501, 3), np.uint8), keyframes.selection)
    fitting = Frames.of(long.unique[:, :, 1:], keyframes.selection)

    with pytest.raises(VideoTooLargeError, match="65501x1 pixels is too large for JPEG"):
        encode(long, jpeg_quality=90)
    assert read_frames(encode(fitting, jpeg_quality=90)).shape == (3, 1, 65_500, 3)


def test_raw_pixels_are_read_without_a_copy(keyframes):
    data = encode(keyframes, "raw")

    images = read_frames(data).unique

    assert np.shares_memory(images, np.frombuffer(data, np.uint8))


def test_pixels_are_read_only(data):
    assert not read_frames(data).unique.flags.writeable


@given(st.floats(0, 1, exclude_max=True))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_a_truncated_file_is_damaged(data, at):
    with pytest.raises(FrameFileError):
        read_frames(data[: int(at * len(data))])


@given(at=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_one_flipped_bit_anywhere_is_noticed_before_arrow_reads_it(data, at, bit):
    damaged = bytearray(data)
    damaged[int(at * len(data))] ^= 1 << bit

    with pytest.raises(FrameFileError):
        read_frames(bytes(damaged))


@pytest.mark.parametrize("find", [bytes.find, bytes.rfind], ids=["header", "footer"])
def test_the_checksum_must_be_the_same_in_both_places(data, find):
    damaged = bytearray(data)
    damaged[find(data, BLANK[:8]) + len(BLANK) - 1] ^= 1

    with pytest.raises(FrameFileError):
        read_frames(bytes(damaged))


def test_what_is_unknown_is_null_to_any_arrow_reader(keyframes):
    timeless = keyframes.with_selection(pts=np.array([0, NO_PTS, -1]))

    table = pa.ipc.open_file(encode(timeless)).read_all()

    assert table["pts"].to_pylist() == [0, None, -1]
    assert table["frame_index"].to_pylist() == [0, 12, None]
    assert read_frames(encode(timeless)).selection.pts.tolist() == [0, NO_PTS, -1]


def test_pixels_that_look_like_a_seal_stay_pixels(keyframes):
    keyframes.unique[1].reshape(-1)[: len(BLANK)] = np.frombuffer(BLANK, np.uint8)

    np.testing.assert_array_equal(read_frames(encode(keyframes, "raw")).unique, keyframes.unique)


def test_any_arrow_reader_can_open_it(data):
    table = pa.ipc.open_file(data).read_all()

    assert table.column_names == ["pixels", "pts", "time_s", "frame_index", "is_keyframe"]
    assert json.loads(table.schema.metadata[b"reelabel"])["decoder"].keys() >= {"av", "libavcodec"}


@pytest.mark.parametrize(
    "change",
    [
        {"schema": SCHEMA_VERSION + 1},
        {"schema": []},
        {"shape": [3, 10_000, 56, 3]},
        {"shape": [2, 28, 56, 3]},
        {"shape": [3, 28, 56]},
        {"frames": {}},
        {"arrays": {"picks": [0, 3]}},
        {"arrays": {}},
        {"arrays": [1]},
        {"arrays": {"picks": [2**70]}},
        {"arrays": {"picks": [[0], [1]]}},
        {"arrays": {"picks": [0], "deviation_s": [float("nan")]}},
        {"arrays": {"picks": [0], "time_s": [0.0, 1.0, float("nan")]}},
        {"columns": {"time_s": ["now", "then", "later"]}},
        {"columns": {"time_s": [0.0, 1.0, None]}},
        {"columns": {"pts": [[0], [1], [2]]}},
        {"encoding": "jpeg"},
        {"encoding": "rgb24"},
        {"without": "frames"},
        {"without": "source_uri"},
    ],
)
def test_a_file_that_contradicts_itself_or_has_another_version_is_not_used(keyframes, change):
    data = rewrite(encode(keyframes), **change)

    with pytest.raises(FrameFileError):
        _ = read_frames(data).unique


def test_a_file_of_an_older_version_is_named_as_such(keyframes):
    with pytest.raises(FrameFileError, match=r"recorded by an older version of Reelabel \(schema 4, not 6\)"):
        read_frames(rewrite(encode(keyframes), schema=4))
    for other in (SCHEMA_VERSION + 1, "6", None):
        with pytest.raises(FrameFileError, match="recorded by another version of Reelabel"):
            read_frames(rewrite(encode(keyframes), schema=other))


def test_columns_of_other_types_are_read_as_their_own(keyframes):
    got = read_frames(rewrite(encode(keyframes), columns={"is_keyframe": [1, 2, 0], "time_s": [0, 1, 2]}))

    assert (got.selection.is_keyframe.dtype, got.selection.time_s.dtype) == (np.bool_, np.float64)
    assert got.is_keyframe.tolist() == [True, True, True, False]


def test_arbitrary_bytes_are_not_a_frame_file():
    with pytest.raises(FrameFileError):
        read_frames(b"PAR1" * 100)


def test_the_settings_offer_every_lossless_encoding():
    assert fields_of(StoreSettings)["encoding"].annotation == ExactEncoding
