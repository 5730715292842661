"""Frame files of images."""

import numpy as np

from reelabel.result import Frames
from reelabel.sampling.options import Sampling
from tasks.demo.shapes import draw_shape, render_frames
from tests.frame_files import frame_file_of, selection_of


def image_file(seed):
    rng = np.random.default_rng(seed)
    selection = selection_of(1, fps=25.0, duration_s=0.0, method="linear")
    image = Frames.of(render_frames(draw_shape(rng), np.zeros(1), rng), selection)
    return frame_file_of(image, source_uri="p", fingerprint="e", sampling=Sampling(num_frames=1))
