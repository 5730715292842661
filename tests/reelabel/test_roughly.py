"""Decoding roughly gives the same frames, faster, with nearly the same pixels; nothing else is decoded so."""

import numpy as np
import pytest

from reelabel.extract import extract_keyframes_of_file
from reelabel.limits import Limits
from reelabel.sampling.options import Sampling
from reelabel.sources.video_file import open_video_file

EVERY = Sampling(sampler="uniform", num_frames=-1, max_pixels=48 * 27, size_multiple_px=1)


@pytest.mark.parametrize("codec", ["libx264", "libx265", "mpeg4"])
def test_the_frames_are_the_same_and_their_pixels_nearly_so(make_clip, codec):
    path = make_clip("clip.mp4", codec=codec, b_frames=2, size=(320, 180))

    with open_video_file(path) as file:
        exact, rough = (
            extract_keyframes_of_file(file, sampling=EVERY, limits=Limits(), roughly=roughly)
            for roughly in (False, True)
        )

    assert (rough.method, rough.pts.tolist()) == (exact.method, exact.pts.tolist())
    assert np.abs(rough.images.astype(int) - exact.images).mean((1, 2, 3)).max() < 4


def test_the_filter_is_left_out_of_h264(make_clip):
    path = make_clip("clip.mp4", size=(320, 180), qp="40")

    with open_video_file(path) as file:
        exact, rough = (
            extract_keyframes_of_file(file, sampling=EVERY, limits=Limits(), roughly=roughly).images
            for roughly in (False, True)
        )

    assert (exact != rough).any()
