"""Towers by colour, in this process: a frame's vector is its mean colour, a text's the colour that it names."""

import numpy as np

from infra.errors import EngineLostError
from tasks.description.embeddings import normalize
from tasks.embedding.protocol import TowersInfo

RGB = {"red": (1, 0, 0), "green": (0, 1, 0), "blue": (0, 0, 1)}
INFO = TowersInfo(
    device="cpu",
    gpus=0,
    dtype="float32",
    dimensions=3,
    size_px=32,
    max_tokens=6,
    scale=None,
    bias=None,
    start_ms=1.0,
    versions={"colours": "1"},
)


class ColourTowers:
    """Counts what it embeds; dies on frames of the colour `deadly`."""

    def __init__(self, deadly=None):
        self.images, self.texts, self.deadly = 0, [], deadly

    def embed_frames(self, videos):
        frames = np.concatenate(videos).astype(np.float64)
        vectors = normalize(frames.mean(axis=(1, 2)))
        if self.deadly and (vectors @ np.array(RGB[self.deadly]) > 0.9).any():
            raise EngineLostError("The towers failed.")
        self.images += len(frames)
        return vectors

    def embed_texts(self, texts):
        self.texts += texts
        return normalize(np.array([sum(np.array(RGB[word]) for word in text.split() if word in RGB) for text in texts]))

    def count_tokens(self, texts):
        return [len(text.split()) for text in texts]
