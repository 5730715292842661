import json
from dataclasses import replace
from typing import get_args

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infra.settings import StoreSettings
from infra.settings.types import fields_of
from reelabel.errors import FrameFileError, VideoTooLargeError
from reelabel.frames.frame_file import decode_frame_file, encode_frame_file
from reelabel.frames.pixels import ExactEncoding, LosslessEncoding
from reelabel.sampled_frames import NO_PTS
from reelabel.sampling.options import Sampling
from reelabel.seal import BLANK
from tests.reelabel.frames.rewrite import rewrite

LOSSLESS = get_args(LosslessEncoding)


def encode(keyframes, lossless="zstd", **sampling):
    return encode_frame_file(
        keyframes, source_uri="s3://b/v.mp4", fingerprint="e1", sampling=Sampling(**sampling), lossless=lossless
    ).data


@pytest.fixture(params=[*LOSSLESS, "jpeg"])
def data(keyframes, request):
    """A frame file of every encoding."""
    if request.param == "jpeg":
        return encode(keyframes, jpeg_quality=90)
    return encode(keyframes, request.param)


@pytest.mark.parametrize("lossless", LOSSLESS)
def test_losslessly_written_frames_are_read_back_unchanged(keyframes, lossless):
    got = decode_frame_file(encode(keyframes, lossless))

    for name in ("images", "pts", "time_s", "frame_index", "is_keyframe", "picks"):
        np.testing.assert_array_equal(getattr(got, name), getattr(keyframes, name))
    assert (got.fps, got.duration_s, got.total_frames, got.keyframes_in_file) == (12.0, 3.0, 36, 3)
    assert (got.source_uri, got.fingerprint) == ("s3://b/v.mp4", "e1")
    assert got.image_bytes == keyframes.images.nbytes


@given(st.integers(1, 3), st.integers(1, 9), st.integers(1, 9), st.integers(0, 2**32 - 1))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("lossless", LOSSLESS)
def test_frames_of_any_size_are_read_back(keyframes, lossless, count, height, width, seed):
    images = np.random.default_rng(seed).integers(0, 256, (count, height, width, 3), np.uint8)
    columns = {name: getattr(keyframes, name)[:count] for name in ("pts", "time_s", "frame_index", "is_keyframe")}
    some = replace(keyframes, images=images, picks=np.arange(count), **columns)

    np.testing.assert_array_equal(decode_frame_file(encode(some, lossless)).images, images)


def test_jpeg_frames_are_close_and_smaller(keyframes):
    ramp = np.linspace(0, 255, keyframes.images.size).reshape(keyframes.images.shape).astype(np.uint8)
    smooth = replace(keyframes, images=ramp)

    coarse, fine = (encode(smooth, jpeg_quality=quality) for quality in (30, 95))

    assert decode_frame_file(fine).encoding == "jpeg"
    assert np.abs(decode_frame_file(fine).images.astype(int) - ramp).max() < 8
    assert len(coarse) < len(fine) < len(encode(smooth, "raw"))


def test_a_frame_larger_than_jpeg_allows_is_too_large(keyframes):
    long = replace(keyframes, images=np.zeros((3, 1, 70_000, 3), np.uint8))

    with pytest.raises(VideoTooLargeError, match="70000x1 pixels is too large for JPEG"):
        encode(long, jpeg_quality=90)


def test_raw_pixels_are_read_without_a_copy(keyframes):
    data = encode(keyframes, "raw")

    images = decode_frame_file(data).images

    assert np.shares_memory(images, np.frombuffer(data, np.uint8))


def test_pixels_are_read_only(data):
    assert not decode_frame_file(data).images.flags.writeable


@given(st.floats(0, 1, exclude_max=True))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_truncated_file_is_damaged(data, at):
    with pytest.raises(FrameFileError):
        decode_frame_file(data[: int(at * len(data))])


@given(at=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_one_flipped_bit_anywhere_is_noticed_before_arrow_reads_it(data, at, bit):
    damaged = bytearray(data)
    damaged[int(at * len(data))] ^= 1 << bit

    with pytest.raises(FrameFileError):
        decode_frame_file(bytes(damaged))


@pytest.mark.parametrize("find", [bytes.find, bytes.rfind], ids=["header", "footer"])
def test_the_checksum_must_be_the_same_in_both_places(data, find):
    damaged = bytearray(data)
    damaged[find(data, BLANK[:8]) + len(BLANK) - 1] ^= 1

    with pytest.raises(FrameFileError):
        decode_frame_file(bytes(damaged))


def test_what_is_unknown_is_null_to_any_arrow_reader(keyframes):
    timeless = replace(keyframes, pts=np.array([0, NO_PTS, -1]))

    table = pa.ipc.open_file(encode(timeless)).read_all()

    assert table["pts"].to_pylist() == [0, None, -1]
    assert table["frame_index"].to_pylist() == [0, 12, None]
    assert decode_frame_file(encode(timeless)).pts.tolist() == [0, NO_PTS, -1]


def test_pixels_that_look_like_a_seal_stay_pixels(keyframes):
    keyframes.images[1].reshape(-1)[: len(BLANK)] = np.frombuffer(BLANK, np.uint8)

    np.testing.assert_array_equal(decode_frame_file(encode(keyframes, "raw")).images, keyframes.images)


def test_any_arrow_reader_can_open_it(data):
    table = pa.ipc.open_file(data).read_all()

    assert table.column_names == ["pixels", "pts", "time_s", "frame_index", "is_keyframe"]
    assert json.loads(table.schema.metadata[b"reelabel"])["decoder"].keys() >= {"av", "libavcodec"}


@pytest.mark.parametrize(
    "change",
    [
        {"schema": 3},
        {"height_px": 10_000},
        {"encoding": "jpeg"},
        {"encoding": "rgb24"},
        {"without": "first_ms"},
        {"without": "segment_s"},
    ],
)
def test_a_file_that_contradicts_itself_or_has_another_version_is_not_used(keyframes, change):
    data = rewrite(encode(keyframes), **change)

    with pytest.raises(FrameFileError):
        _ = decode_frame_file(data).images


def test_arbitrary_bytes_are_not_a_frame_file():
    with pytest.raises(FrameFileError):
        decode_frame_file(b"PAR1" * 100)


def test_the_settings_offer_every_lossless_encoding():
    assert fields_of(StoreSettings)["encoding"].annotation == ExactEncoding
