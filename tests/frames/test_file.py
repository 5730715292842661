import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infra.errors import FrameFileError
from tasks.domain import Sampling
from tasks.frames.file import decode_frame_file, encode_frame_file


@pytest.fixture
def data(keyframes):
    return encode_frame_file(keyframes, source_uri="s3://b/v.mp4", fingerprint="e1", sampling=Sampling())


def test_what_is_written_is_read_back(keyframes, data):
    got = decode_frame_file(data)

    for name in ("images", "pts", "time_s", "frame_index", "is_keyframe", "picks"):
        np.testing.assert_array_equal(getattr(got, name), getattr(keyframes, name))
    assert (got.fps, got.duration_s, got.total_frames, got.keyframes_in_file) == (12.0, 3.0, 36, 3)
    assert (got.source_uri, got.fingerprint) == ("s3://b/v.mp4", "e1")


def test_pixels_are_read_without_a_copy(data):
    images = decode_frame_file(data).images

    start = np.frombuffer(data, np.uint8).__array_interface__["data"][0]
    address = images.__array_interface__["data"][0]
    assert start <= address < start + len(data)
    assert not images.flags.writeable


@pytest.mark.parametrize("length", [0, 10, 200, -100, -1])
def test_a_truncated_file_is_damaged(data, length):
    with pytest.raises(FrameFileError):
        decode_frame_file(data[:length])


@given(at=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_one_flipped_bit_anywhere_is_noticed_before_arrow_reads_it(data, at, bit):
    damaged = bytearray(data)
    damaged[int(at * len(data))] ^= 1 << bit

    with pytest.raises(FrameFileError):
        decode_frame_file(bytes(damaged))


def test_pixels_that_look_like_a_seal_are_pixels(keyframes):
    keyframes.images[1].reshape(-1)[:15] = np.frombuffer(b"\x00crc32\x0000000000", np.uint8)

    data = encode_frame_file(keyframes, source_uri="s3://b/v.mp4", fingerprint="e1", sampling=Sampling())

    np.testing.assert_array_equal(decode_frame_file(data).images, keyframes.images)


def test_any_arrow_reader_can_open_it(data):
    table = pa.ipc.open_file(data).read_all()

    assert table.column_names == ["pixels", "pts", "time_s", "frame_index", "is_keyframe"]
    assert json.loads(table.schema.metadata[b"reelabel"])["made_by"].keys() >= {"reelabel", "av", "libavcodec"}


def test_any_other_bytes_are_not_a_frame_file():
    with pytest.raises(FrameFileError):
        decode_frame_file(b"PAR1" * 100)
