"""Frames of moving shapes, as pairs and as one video."""

import numpy as np

from benchmarks.engine.noise import frame_file_of
from tasks.demo.shapes import draw_shape, render_frames
from tasks.live.window import FramePairs

FPS = 2.0


def clip(seed, count=16, side_px=None):
    rng = np.random.default_rng(seed)
    shape = draw_shape(rng)
    frames = render_frames(shape, np.linspace(0, 1, count), rng)
    return frames if side_px is None else frames[:, :side_px, :side_px]


def pairs_of(frames, fps=FPS, start_s=0.0):
    pairs, items = FramePairs(), []
    for number, image in enumerate(frames):
        items += pairs.add(image, start_s + number / fps)
    return items + ([pairs.alone] if pairs.alone else [])


def whole_video(frames, fps):
    return frame_file_of(frames, fps=fps)
