"""The formats in which frames are returned."""

import pickle

import numpy as np
import pytest

from reelabel.integrations.ray_data.cells import OutputFormat
from tests.engine_python import run_by_engine
from tests.reelabel.frames.conftest import keyframes

__all__ = ["keyframes"]

_PARSE = """
import sys, pickle
from vllm.multimodal.parse import MultiModalDataParser
item = pickle.load(sys.stdin.buffer)
videos = MultiModalDataParser(video_needs_metadata=True).parse_mm_data({"video": [item]})["video"]
frames, metadata = videos.get(0)
print(frames.shape, metadata["frames_indices"], metadata["fps"], metadata["do_sample_frames"])
"""


def test_images_come_in_the_order_shown(keyframes):
    images = OutputFormat(kind="pil").video(keyframes)

    assert [image.size for image in images] == [(56, 28)] * 4
    np.testing.assert_array_equal(np.asarray(images[3]), keyframes.unique[2])


def test_arrays_have_channels_last_or_first(keyframes):
    last = OutputFormat(kind="numpy").video(keyframes)
    first = OutputFormat(kind="numpy", channels_first=True).video(keyframes)

    assert (last.shape, first.shape) == ((4, 28, 56, 3), (4, 3, 28, 56))
    np.testing.assert_array_equal(first[:, 1], last[..., 1])


@pytest.mark.parametrize("form", [OutputFormat(kind="pil"), OutputFormat(kind="numpy"), OutputFormat(kind="packed")])
def test_an_empty_cell_has_the_type_of_a_cell_with_frames(form, keyframes):
    assert type(form.no_video()) is type(form.video(keyframes))


@pytest.mark.system
def test_vllm_accepts_packed_cells(keyframes):
    packed = pickle.dumps(OutputFormat(kind="packed").video(keyframes))

    stdout = run_by_engine("-c", _PARSE, input=packed, capture_output=True).stdout

    assert stdout.decode().splitlines()[-1] == "(4, 28, 56, 3) [0, 0, 12, 24] 12.0 False"
