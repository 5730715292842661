"""An encoder without a model, in the real process with the real protocol: the vector of a frame is of its mean colour.

A frame whose first pixel is `KILL` kills the process each time, `KILL_ONCE` only while the file at
`EncoderConfig.model` exists, `HANG` stops it, and `FAULT` breaks it. A FIFO there keeps it loading.
"""

import os
import signal
import sys
from pathlib import Path

import numpy as np

from reelabel_engine.__main__ import main
from reelabel_engine.errors import ModelError
from reelabel_engine.protocol import EncoderInfo

COMMAND = (sys.executable, "-P", __file__)
KILL, KILL_ONCE, HANG, FAULT, NOT_FINITE = 250, 251, 252, 253, 254


class StubEncoder:
    def __init__(self, config, *, started):  # noqa: ARG002
        self._model = Path(config.model)
        if self._model.is_fifo():
            self._model.read_bytes()
        elif self._model.is_file() and self._model.read_text():
            raise ModelError(self._model.read_text())

    def describe(self):
        return EncoderInfo(
            device="cpu",
            gpus=0,
            dtype="float32",
            dimensions=3,
            size_px=2,
            max_tokens=4,
            scale=None,
            bias=None,
            start_ms=1.0,
            versions={"stub": "1"},
        )

    def embed_images(self, videos):
        frames = [frame for video in videos for frame in video]
        for frame in frames:
            self._obey(frame[0, 0, 0])
        return mean_colours(frames)

    def _obey(self, order):
        if order == KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        if order == KILL_ONCE and self._model.exists():
            self._model.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        if order == HANG:
            signal.pause()
        if order == FAULT:
            raise MemoryError("no memory for the batch")

    def embed_texts(self, texts):
        return np.full((len(texts), 3), np.nan, np.float32)

    def count_tokens(self, texts):
        return [len(text.split()) for text in texts]


def mean_colours(frames):
    return np.stack([frame.mean(axis=(0, 1)) for frame in frames]).astype(np.float32)


if __name__ == "__main__":
    main(load_encoder=StubEncoder)
