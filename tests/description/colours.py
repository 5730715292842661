"""An image-text model without weights: a frame's vector is its mean colour, and colours are the texts that it knows."""

import threading
from dataclasses import replace

import numpy as np

from infra.errors import EngineLostError
from reelabel_engine.protocol import EncoderInfo
from tasks.description.chunks import embed_chunks
from tasks.description.describer import CutFiles, VideoDescriber
from tasks.description.embeddings import normalize
from tasks.description.pooling import TextBank, describe_chunks
from tasks.embedding.batches import FrameBatcher
from tasks.embedding.encoder import EmbeddedTexts
from tasks.embedding.vector_file import VectorCache
from tasks.embedding.video import VideoEmbedder

COLOURS = {"red": (1, 0, 0), "green": (0, 1, 0), "blue": (0, 0, 1)}
INFO = EncoderInfo(
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


class ColourEncoder:
    """Frames with a white first pixel kill it, as those of a hostile video might; `is_dead` makes all do so."""

    processes, loaded = 1, INFO

    def __init__(self):
        self.requests, self.is_dead, self._lock = [], False, threading.Lock()

    @property
    def images_embedded(self):
        return sum(map(sum, self.requests))

    def start(self):
        """Start nothing."""

    def info(self):
        return INFO

    def embed_images(self, videos):
        with self._lock:
            self.requests.append([len(frames) for frames in videos])
        if self.is_dead or any((frames[:, 0, 0] > 250).all(axis=-1).any() for frames in videos):
            raise EngineLostError("The encoder failed: its process died; see the log encoder.log.")
        return normalize(np.concatenate(videos).mean(axis=(1, 2)) + 1e-3)

    def embed_texts(self, texts):
        return EmbeddedTexts(np.array([COLOURS[text] for text in texts], np.float32), (1,) * len(texts))


def bank_of(*texts):
    return TextBank(texts=texts, vectors=ColourEncoder().embed_texts(texts).vectors)


def colour_describer(extractor, root_uri, spec, *, tags, encoder=None):
    """Make a describer whose files are below a root."""
    files = {"objects": extractor.objects, "root_uri": root_uri}
    embedder = VideoEmbedder(
        extractor=replace(extractor, sampling=spec.sampling(max_pixels=2048)),
        cache=VectorCache(**files),
        frames=FrameBatcher(encoder=encoder or ColourEncoder(), batch_frames=128),
        spec=spec,
        info=INFO,
    )
    return VideoDescriber(
        embedder=embedder,
        cuts=CutFiles(**files),
        spec=spec,
        tags=bank_of(*tags),
        captions=bank_of("green", "red"),
    )


def describe(embeddings, chunks, **options):
    return describe_chunks(embed_chunks(chunks, embeddings), **options)
