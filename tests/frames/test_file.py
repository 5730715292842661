import numpy as np
import pytest

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


def test_a_flipped_pixel_is_noticed(data, keyframes):
    at = data.index(keyframes.images[1].tobytes()) + 100
    damaged = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]

    with pytest.raises(FrameFileError, match="checksum"):
        decode_frame_file(damaged)


def test_any_other_bytes_are_not_a_frame_file():
    with pytest.raises(FrameFileError):
        decode_frame_file(b"PAR1" * 100)
