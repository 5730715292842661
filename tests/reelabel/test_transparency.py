"""Transparency is ignored: colours are shown as they are stored, as if they were opaque."""

import av
import numpy as np
import pytest

from reelabel.extract import extract_local
from reelabel.sampling.options import Sampling

COLOURS = np.array([[220, 20, 20], [20, 20, 220], [20, 200, 20], [200, 200, 200]])
OPACITIES = np.array([0, 85, 170, 255])
SIDE = 56


def encode(path, codec, pix_fmt):
    """Encode columns of all colours, and rows of all opacities."""
    image = np.zeros((4, 4, 4), np.uint8)
    image[..., :3], image[..., 3] = COLOURS, OPACITIES[:, None]
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=12)
        stream.width = stream.height = 4 * SIDE
        stream.pix_fmt = pix_fmt
        stream.bit_rate = 4_000_000
        for _ in range(4):
            frame = av.VideoFrame.from_ndarray(image.repeat(SIDE, 0).repeat(SIDE, 1), format="rgba")
            container.mux(stream.encode(frame.reformat(format=pix_fmt)))
        container.mux(stream.encode(None))
    return path


@pytest.mark.parametrize(
    ("name", "codec", "pix_fmt"),
    [
        ("clip.webm", "libvpx-vp9", "yuva420p"),
        ("clip.mov", "prores_ks", "yuva444p10le"),
        ("clip.mov", "qtrle", "argb"),
        ("clip.apng", "apng", "rgba"),
    ],
)
def test_a_transparent_video_is_shown_in_its_stored_colours(tmp_path, name, codec, pix_fmt):
    path = encode(tmp_path / name, codec, pix_fmt)

    for sampler in ("keyframes", "uniform"):
        got = extract_local(path, sampling=Sampling(sampler=sampler, num_frames=2))

        shown = got.unique[:, SIDE // 2 :: SIDE, SIDE // 2 :: SIDE].astype(int)
        assert np.abs(shown - COLOURS).max() <= 8
