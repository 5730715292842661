"""Frames of moving shapes, as pairs and as one video."""

import numpy as np

from reelabel.frames.frame_file import encode_frame_file
from reelabel.sampled_frames import Orientation, SampledFrames
from reelabel.sampling.options import Sampling
from tasks.demo.shapes import draw_shape, render_frames
from tasks.live.items import Pairs

FPS = 2.0


def clip(seed, count=16, side_px=None):
    rng = np.random.default_rng(seed)
    shape = draw_shape(rng)
    frames = render_frames(shape, np.linspace(0, 1, count), rng)
    return frames if side_px is None else frames[:, :side_px, :side_px]


def pairs_of(frames, fps=FPS, start_s=0.0):
    pairs, items = Pairs(), []
    for number, image in enumerate(frames):
        items += pairs.add(image, start_s + number / fps)
    return items + ([pairs.alone] if pairs.alone else [])


def whole_video(frames, fps):
    count = len(frames)
    sampled = SampledFrames(
        images=frames,
        pts=np.arange(count),
        time_s=np.arange(count) / fps,
        frame_index=np.arange(count),
        is_keyframe=np.ones(count, bool),
        picks=np.arange(count),
        keyframes_in_file=count,
        total_frames=count,
        fps=fps,
        duration_s=count / fps,
        native_width_px=frames.shape[2],
        native_height_px=frames.shape[1],
        orientation=Orientation(),
        method="seek",
        reason="",
        decode_ms=1.0,
    )
    return encode_frame_file(sampled, source_uri="v", fingerprint="e", sampling=Sampling()).data
