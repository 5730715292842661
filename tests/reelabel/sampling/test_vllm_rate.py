"""Samplers and the model get the frame rate of vLLM's loaders: OpenCV's."""

import cv2
import pytest

from benchmarks.media.matrix import Cell
from reelabel.extract import extract_local
from reelabel.integrations.vllm.video_input import video_input
from reelabel.sampling.options import Sampling
from reelabel.sampling.registry import choose_indices
from reelabel.sampling.spec import VideoProperties

# The average rate counts the time before the first frame; the guessed one does not.
LATE = [Cell("avi", "mpeg4", "start-later"), Cell("ts", "h264", "start-later"), Cell("asf", "h264", "start-later")]
UNSTEADY = [Cell(name, "h264", "variable-rate") for name in ("mp4", "mkv", "flv", "avi")]


@pytest.mark.parametrize("cell", [*LATE, *UNSTEADY, Cell("ts", "mpeg1")], ids=lambda cell: cell.name)
@pytest.mark.parametrize("options", [{"sampler": "qwen3_vl"}, {"sampler": "uniform", "fps": 7}], ids=str)
def test_samplers_use_the_frame_rate_that_vllm_uses(cell, options, tmp_path):
    path = tmp_path / "clip"
    path.write_bytes(cell.make())
    rate = cv2.VideoCapture(str(path)).get(cv2.CAP_PROP_FPS)

    sampling = Sampling(num_frames=32, **options)
    got = extract_local(path, sampling=sampling)

    facts = VideoProperties(
        total_frames=got.selection.total_frames, fps=rate, duration_s=got.selection.total_frames / rate
    )
    assert got.selection.fps == pytest.approx(rate)
    assert got.selection.frame_index[got.shown].tolist() == choose_indices(sampling, facts).tolist()
    # Where frames follow no rate, the model is told their times in milliseconds.
    assert video_input(got)[1]["fps"] in (pytest.approx(rate), 1000.0)
