"""HEVC that has been cut and joined: a decoder leaves out the leading frames of a BLA picture."""

import numpy as np
import pytest

from reelabel.extract import extract_keyframes
from reelabel.sampled_frames import UNKNOWN_POSITION
from reelabel.sampling.options import Sampling
from tests.reelabel.decode.nal_units import rewrite

CRA, BLA_W_LP = 21, 16


def as_bla(unit):
    return bytes([unit[0] & 0x81 | BLA_W_LP << 1]) + unit[1:] if unit[0] >> 1 & 0x3F == CRA else unit


@pytest.mark.parametrize("suffix", [".mp4", ".mkv"])
@pytest.mark.parametrize(
    "sampling",
    [Sampling(num_frames=4), Sampling(sampler="uniform", num_frames=9), Sampling(sampler="uniform", num_frames=48)],
    ids=["keyframes", "some frames", "every frame"],
)
def test_no_frame_after_a_splice_is_counted_that_a_linear_decode_leaves_out(
    make_clip, tmp_path, decode_linearly, suffix, sampling
):
    coded = make_clip("clip.mp4", codec="libx265", **{"x265-params": "open-gop=1:bframes=3:log-level=none"})
    path = rewrite(coded, tmp_path / f"spliced{suffix}", lambda _, units: [as_bla(unit) for unit in units])
    linear = decode_linearly(path)
    assert len(linear) < 48

    got = extract_keyframes(path, sampling=sampling, native=True)

    assert got.total_frames in {None, len(linear)}
    for index, pts, image in zip(got.frame_index, got.pts.tolist(), got.images, strict=True):
        position = [each for each, _, _ in linear].index(pts)
        assert index in {position, UNKNOWN_POSITION}
        np.testing.assert_array_equal(image, linear[position][2])
