"""Frame files of images."""

import numpy as np

from reelabel.result import Frames, Orientation, Selection
from reelabel.sampling.options import Sampling
from tasks.demo.shapes import draw_shape, render_frames
from tests.frame_files import frame_file_of


def image_file(seed):
    rng = np.random.default_rng(seed)
    image = Frames.of(
        render_frames(draw_shape(rng), np.zeros(1), rng),
        Selection(
            pts=np.zeros(1, np.int64),
            time_s=np.zeros(1),
            frame_index=np.zeros(1, np.int64),
            is_keyframe=np.ones(1, bool),
            picks=np.zeros(1, np.int64),
            keyframes_in_file=1,
            total_frames=1,
            fps=25.0,
            duration_s=0.0,
            native_width_px=56,
            native_height_px=56,
            orientation=Orientation(),
            method="linear",
            note="",
            decode_ms=1.0,
        ),
    )
    return frame_file_of(image, source_uri="p", fingerprint="e", sampling=Sampling(num_frames=1))
