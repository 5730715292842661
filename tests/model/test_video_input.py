"""What vLLM is told of a video's frames and times."""

import numpy as np

from tasks.domain import Sampling
from tasks.model.video_input import video_input
from tasks.video.extract import extract_keyframes
from tasks.video.limits import Limits
from tests.clips import make_clip

__all__ = ["make_clip"]


def test_frames_come_in_the_order_shown_with_indices_that_tell_their_times(make_clip):
    frames = extract_keyframes(make_clip(), sampling=Sampling(num_frames=6), limits=Limits())

    pixels, metadata = video_input(frames)

    np.testing.assert_array_equal(pixels, frames.images[frames.picks])
    assert metadata["frames_indices"] == [0, 0, 12, 24, 24, 36]
    assert (metadata["fps"], metadata["total_num_frames"], metadata["duration"]) == (12, 48, 4)
    assert metadata["do_sample_frames"] is False
