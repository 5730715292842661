"""Clips with known changes of scene for the tests of this folder."""

from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

import av
import numpy as np
import pytest
from PIL import Image

from reelabel.options import Limits
from reelabel.pool.decode_pool import DecodePool
from reelabel.sources.video_file import open_video_file
from tasks.description.scenes.footage import Footage


@lru_cache(maxsize=32)
def encode(
    suffix, shots, gop, *, flash=None, flash_frames=1, gap=None, scenecut="0", hold=4, step_px=1, fps=25, brightness=1.0
):
    """Encode shots of some lengths, at 25 frames a second.

    From `flash` on, some frames are white; at `gap`, the clock jumps by 10 s.

    Pictures move by `step_px` every `hold` frames.
    """
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"clip{suffix}"
        with av.open(str(path), "w") as container:
            options = {"g": str(gop), "sc_threshold": scenecut, "preset": "veryfast"}
            stream = container.add_stream("libx264", rate=fps, options=options)
            stream.width, stream.height, stream.pix_fmt = 96, 64, "yuv420p"
            number = 0
            for shot, length in enumerate(shots):
                scene = np.random.default_rng(shot).integers(0, 256, (6, 9, 3), np.uint8) // (1 + shot % 2)
                still = np.asarray(Image.fromarray(scene).resize((96, 64), Image.Resampling.BICUBIC))
                for frame in range(length):
                    picture = np.roll(still, step_px * (frame // hold), axis=1)
                    is_flash = flash is not None and flash <= number < flash + flash_frames
                    picture = (np.full_like(picture, 255) if is_flash else picture) * brightness
                    picture = picture.astype(np.uint8)
                    shown = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")
                    shown.pts = number + (250 if gap is not None and number >= gap else 0)
                    container.mux(stream.encode(shown))
                    number += 1
            container.mux(stream.encode())
        return path.read_bytes()


@pytest.fixture
def shots(tmp_path):
    """Return a function that writes a clip of shots."""

    def make(*lengths, suffix=".mp4", gop=50, **options):
        path = tmp_path / f"clip{suffix}"
        path.write_bytes(encode(suffix, lengths, gop, **options))
        return path

    return make


@pytest.fixture(scope="session")
def pool():
    with DecodePool(processes=1, threads=1, timeout_s=30) as pool:
        yield pool


@pytest.fixture
def look(pool):
    """Return a function that opens a file as footage."""
    opened = []

    def open_footage(path):
        context = open_video_file(path)
        opened.append(context)
        return Footage(video=context.__enter__(), pool=pool, limits=Limits())

    yield open_footage
    for context in opened:
        context.__exit__(None, None, None)
