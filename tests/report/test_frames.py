"""The frames of a clip on a page: their thumbnails, their places, and the clip that the replay starts from."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from tasks.report.frames import thumbnail
from tests.report.rows import strip


def size_of(uri):
    return Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))).size


@pytest.mark.parametrize(
    ("shape", "aspect", "size"),
    [
        pytest.param((72, 288), 1.0, (144, 36), id="wide"),
        pytest.param((288, 72), 1.0, (36, 144), id="high"),
        pytest.param((40, 60), 1.0, (60, 40), id="small, which stays so"),
        pytest.param((100, 100), 2.0, (144, 72), id="of wide pixels"),
        pytest.param((1000, 1), 1.0, (1, 144), id="a line"),
    ],
)
def test_a_thumbnail_is_as_players_show_it(shape, aspect, size):
    assert size_of(thumbnail(np.zeros((*shape, 3), np.uint8), pixel_aspect=aspect)) == size


@pytest.mark.parametrize(
    ("facts", "clip"),
    [
        pytest.param({}, {"fps": 16.0, "totalFrames": 64, "gop": 32, "keyframes": [0, 32]}, id="known"),
        pytest.param(
            {"fps": 0.0}, {"fps": 16.0, "totalFrames": 64, "gop": 32, "keyframes": [0, 32]}, id="without a rate"
        ),
        pytest.param(
            {"total_frames": None, "keyframe_times_s": (1.0, 2.0, 9.0)},
            {"fps": 16.0, "totalFrames": 64, "gop": 32, "keyframes": [0, 16]},
            id="without a number of frames, with keyframes later than the length",
        ),
        pytest.param(
            {"keyframe_times_s": None, "keyframes_in_file": 3},
            {"fps": 16.0, "totalFrames": 64, "gop": 22, "keyframes": None},
            id="with keyframes of unknown places",
        ),
        pytest.param({"fps": 0.0, "duration_s": 0.0}, None, id="without rate and length"),
    ],
)
def test_a_replay_starts_from_the_clip_as_far_as_it_is_known(facts, clip):
    assert strip(**facts).clip == clip


def test_a_timeline_ends_with_the_last_frame_or_the_file_and_has_at_most_400_ticks():
    assert (strip().end_s, strip(duration_s=1.0).end_s) == (4.0, 2.0)
    many = strip(keyframe_times_s=tuple(float(at) for at in range(1_000)))
    assert list(many.keyframe_ticks_s) == [float(at) for at in range(0, 1_000, 3)]
    assert list(strip(keyframe_times_s=None).keyframe_ticks_s) == [0.0, 2.0]
    assert dict(strip().times_shown) == {0: 8, 1: 8}
