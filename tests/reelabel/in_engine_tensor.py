"""Frames as a tensor of PyTorch."""

import numpy as np

import reelabel
from tests.clips import write_clip


def test_frames_become_a_tensor(tmp_path):
    frames = reelabel.extract_frames(write_clip(tmp_path / "clip.mp4", frames=8), "uniform", num_frames=6)

    shape = frames.images.shape
    assert tuple(frames.to_torch().shape) == (6, 3, *shape[1:3])
    assert np.array_equal(frames.to_torch(channels_first=False).numpy(), frames.images)
