"""What embeds clips on this machine by the demo's encoder, as a run does, without services."""

from __future__ import annotations

from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from infra.settings import StoreSettings
from reelabel.frames.cache import FrameCache
from reelabel.frames.extractor import FrameExtractor
from reelabel.frames.fetch import VideoReader
from reelabel.limits import Limits
from reelabel.sampling.options import Sampling
from reelabel.sources.object_store import ObjectStore
from reelabel_engine.protocol import EncoderConfig
from tasks.domain import EmbeddingSpec
from tasks.embedding.batches import FrameBatcher
from tasks.embedding.encoder import TINY_ENCODER, EncoderProcess
from tasks.embedding.vector_file import VectorCache
from tasks.embedding.video import VideoEmbedder
from tasks.model.identity import read_model_card

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from reelabel.pool.decode_pool import DecodePool

_START_TIMEOUT_S = 900.0


@contextmanager
def tiny_embedder(pool: DecodePool, folder: Path) -> Iterator[VideoEmbedder]:
    """Open the demo's encoder, and what embeds clips with it; the embeddings are not kept.

    Args:
        pool: Decodes the clips.
        folder: For the log of the encoder.
    """
    objects, config = ObjectStore(StoreSettings()), EncoderConfig(model=str(TINY_ENCODER))
    log_path = folder / "encoder.log"
    with (
        EncoderProcess(config, log_path=log_path, start_timeout_s=_START_TIMEOUT_S) as encoder,
        TemporaryDirectory(prefix="reelabel-") as kept,
    ):
        root = f"file://{kept}"
        yield VideoEmbedder(
            extractor=FrameExtractor(
                objects=objects,
                cache=FrameCache(objects, root),
                pool=pool,
                sampling=Sampling(max_pixels=602_112, size_multiple_px=28),
                limits=Limits(),
            ),
            reader=VideoReader(objects=objects, pool=pool, limits=Limits()),
            cache=VectorCache(objects=objects, root_uri=root),
            frames=FrameBatcher(encoder=encoder, batch_frames=config.batch_frames),
            spec=EmbeddingSpec(model=read_model_card(str(TINY_ENCODER)).identity),
            info=encoder.info(),
        )
