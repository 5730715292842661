import base64
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from reelabel.errors import FrameFileError
from reelabel.frames.frame_file import decode_frame_file
from tasks.model.server.frame_transport import FRAME_ENCODINGS
from tests.model.asked import frame_file

DATA = frame_file(1, every_s=7.5)


def pictures(texts):
    return np.stack([np.asarray(Image.open(BytesIO(base64.b64decode(text)))) for text in texts])


def test_a_frame_file_travels_as_it_is():
    [part] = FRAME_ENCODINGS["frame_file"](DATA).parts

    kind, _, text = part["video_url"]["url"].partition(",")
    assert kind == "data:application/vnd.apache.arrow.file;base64"
    assert base64.b64decode(text) == DATA


def test_pngs_carry_exact_pixels_and_true_times():
    carried = FRAME_ENCODINGS["png"](DATA)

    frames = decode_frame_file(DATA)
    kind, _, text = carried.parts[0]["video_url"]["url"].partition(",")
    assert kind == "data:video/jpeg;base64"
    assert np.array_equal(pictures(text.split(",")), frames.images[frames.picks])
    video = carried.options["media_io_kwargs"]["video"]
    assert (video["fps"], video["total_num_frames"], video["num_frames"]) == (12.0, 631, -1)
    assert video["frames_indices"] == (frames.picks * 90).tolist()


def test_images_carry_exact_pixels_and_no_times():
    carried = FRAME_ENCODINGS["images"](DATA)

    frames = decode_frame_file(DATA)
    texts = [part["image_url"]["url"].removeprefix("data:image/png;base64,") for part in carried.parts]
    assert np.array_equal(pictures(texts), frames.images[frames.picks])
    assert not carried.options


def test_every_way_tells_a_damaged_frame_file():
    for way in FRAME_ENCODINGS:
        with pytest.raises(FrameFileError):
            FRAME_ENCODINGS[way](DATA[:-100])
