import base64
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from reelabel.errors import FrameFileError
from reelabel.extract import extract_local
from reelabel.frames.frame_file import read_frames
from reelabel.sampling.options import Sampling
from tasks.model.server.frame_transport import FRAME_ENCODINGS
from tests.clips import make_clip
from tests.frame_files import frame_file_of
from tests.model.factories import frame_file

__all__ = ["make_clip"]

DATA = frame_file(1, every_s=7.5)


def pictures(texts):
    return np.stack([np.asarray(Image.open(BytesIO(base64.b64decode(text)))) for text in texts])


def test_a_frame_file_is_sent_unchanged():
    [part] = FRAME_ENCODINGS["frame_file"](DATA).parts

    kind, _, text = part["video_url"]["url"].partition(",")
    assert kind == "data:application/vnd.apache.arrow.file;base64"
    assert base64.b64decode(text) == DATA


def test_pngs_carry_exact_pixels_and_true_times():
    carried = FRAME_ENCODINGS["png"](DATA)

    frames = read_frames(DATA)
    kind, _, text = carried.parts[0]["video_url"]["url"].partition(",")
    assert kind == "data:video/jpeg;base64"
    assert np.array_equal(pictures(text.split(",")), frames.images)
    video = carried.options["media_io_kwargs"]["video"]
    assert (video["fps"], video["total_num_frames"], video["num_frames"]) == (12.0, 631, -1)
    assert video["frames_indices"] == (frames.shown * 90).tolist()


@pytest.mark.parametrize("frames", [1, 3, 12, 15])
def test_a_clip_with_fewer_frames_than_requested_is_sent_with_the_right_times(make_clip, frames):
    clip = extract_local(make_clip(frames=frames, gop=1, fps=12), sampling=Sampling(num_frames=16))
    data = frame_file_of(clip, source_uri="v", fingerprint="e", sampling=Sampling())

    video = FRAME_ENCODINGS["png"](data).options["media_io_kwargs"]["video"]

    assert video["total_num_frames"] >= len(video["frames_indices"]) == 16  # as vLLM demands
    assert [index / video["fps"] for index in video["frames_indices"]] == (clip.shown / 12).tolist()
    assert video["duration"] == video["total_num_frames"] / video["fps"] == frames / 12


def test_images_carry_exact_pixels_without_times():
    carried = FRAME_ENCODINGS["images"](DATA)

    frames = read_frames(DATA)
    texts = [part["image_url"]["url"].removeprefix("data:image/png;base64,") for part in carried.parts]
    assert np.array_equal(pictures(texts), frames.images)
    assert not carried.options


def test_every_transport_detects_a_damaged_frame_file():
    for encoding in FRAME_ENCODINGS:
        with pytest.raises(FrameFileError):
            FRAME_ENCODINGS[encoding](DATA[:-100])
