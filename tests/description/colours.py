"""An image-text model without weights: a frame's vector is its mean colour, and colours are the texts that it knows."""

import threading
from dataclasses import replace

import numpy as np

from infra.errors import EngineLostError
from reelabel_engine.protocol import TowersInfo
from tasks.description.describer import VideoDescriber
from tasks.description.embeddings import normalize
from tasks.description.outline import OutlineFiles
from tasks.description.pooling import EmbeddedBank, describe_pooled, pool_chunks
from tasks.description.scene_file import SceneFiles
from tasks.embedding.batches import FrameBatcher
from tasks.embedding.embedding_file import EmbeddingCache
from tasks.embedding.pack_file import PackFiles
from tasks.embedding.video import VideoEmbedder

COLOURS = {"red": (1, 0, 0), "green": (0, 1, 0), "blue": (0, 0, 1)}
INFO = TowersInfo(
    device="cpu",
    gpus=0,
    dtype="float32",
    dimensions=3,
    size_px=32,
    max_tokens=4,
    scale=10.0,
    bias=-5.0,
    start_ms=1.0,
    versions={"colours": "1"},
)


class ColourTowers:
    """Frames with a white first pixel kill it, as those of a hostile video might; `is_dead` makes all do so."""

    def __init__(self):
        self.requests, self.is_dead, self._lock = [], False, threading.Lock()

    @property
    def images_embedded(self):
        return sum(map(sum, self.requests))

    def start(self):
        """Start nothing."""

    def wait_ready(self):
        return INFO

    def embed_frames(self, videos):
        with self._lock:
            self.requests.append([len(frames) for frames in videos])
        if self.is_dead or any((frames[:, 0, 0] > 250).all(axis=-1).any() for frames in videos):
            raise EngineLostError("The towers failed: their process died; see the log towers.log.")
        return normalize(np.concatenate(videos).mean(axis=(1, 2)) + 1e-3)

    def embed_texts(self, texts):
        return np.array([COLOURS[text] for text in texts], np.float32)


def bank_of(*texts):
    return EmbeddedBank(texts=texts, vectors=ColourTowers().embed_texts(texts))


def colour_describer(extractor, root_uri, spec, *, tags, towers=None):
    """Make a describer whose files are below a root."""
    files = {"objects": extractor.objects, "root_uri": root_uri}
    embedder = VideoEmbedder(
        extractor=replace(extractor, sampling=spec.sampling(max_pixels=2048)),
        reader=extractor,
        cache=EmbeddingCache(**files),
        packs=PackFiles(**files),
        frames=FrameBatcher(towers=towers or ColourTowers(), batch_frames=128),
        spec=spec,
        info=INFO,
    )
    return VideoDescriber(
        embedder=embedder,
        scene_files=SceneFiles(**files),
        outlines=OutlineFiles(**files),
        spec=spec,
        tags=bank_of(*tags),
        captions=bank_of("green", "red"),
    )


def describe(embeddings, chunks, **options):
    return describe_pooled(pool_chunks(embeddings, chunks), chunks, **options)
