"""Pictures and samples as they arrive, decoded by the pool."""

from dataclasses import replace

import pytest

from tasks.live.media import FrameReader, read_samples
from tasks.live.messages import ProtocolError
from tests.live.client import picture
from tests.live.scripted_model import INFO

PATCH_PX = 28 * 28


@pytest.mark.parametrize(
    ("size", "max_frame_px", "model_px", "shown"),
    [
        pytest.param((112, 56), 200_704, 200_704, (56, 112), id="as it is"),
        pytest.param((640, 480), 50 * PATCH_PX, 200_704, (168, 224), id="scaled to the service's size"),
        pytest.param((640, 480), 200_704, 50 * PATCH_PX, (168, 224), id="scaled to the model's size"),
        pytest.param((640, 640), PATCH_PX, 200_704, (56, 56), id="of four patches at least"),
        pytest.param((100, 60), 200_704, 200_704, (56, 112), id="in whole patches"),
    ],
)
def test_a_picture_is_scaled_to_what_the_model_takes(pool, size, max_frame_px, model_px, shown):
    reader = FrameReader(pool, replace(INFO, max_frame_px=model_px), max_frame_px=max_frame_px)

    found = reader.read(picture(99, size=size))

    assert found.image.shape == (*shown, 3)
    assert found.decoded_px == size[0] * size[1]


@pytest.mark.parametrize(
    ("start", "kind"), [(b"fLaC", "FLAC"), (b"ID3", "MP3"), (b"\x1a\x45\xdf\xa3", "WebM"), (b"RIFF", "WAV")]
)
def test_a_file_of_audio_is_named(start, kind):
    with pytest.raises(ProtocolError, match=rf"The audio is a file \({kind}\)"):
        read_samples(start + b"\0" * 64, replace(INFO, takes_audio=True))


def test_samples_are_little_endian_and_at_most_half_a_minute():
    hears = replace(INFO, takes_audio=True)

    assert read_samples(b"\x01\x00\xff\xff\x00\x80", hears).tolist() == [1, -1, -32_768]
    assert len(read_samples(bytes(2 * 16_000 * 30), hears)) == 480_000
    with pytest.raises(ProtocolError, match="a chunk has at most 30"):
        read_samples(bytes(2 * 16_000 * 30 + 2), hears)
