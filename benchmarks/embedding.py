"""The demo's image-text model, without services."""

from __future__ import annotations

from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from infra.settings import StoreSettings
from reelabel.frames.cache import FrameCache
from reelabel.options import Limits
from reelabel.sampling.options import Sampling
from reelabel.sources.object_store import ObjectStore
from reelabel_engine.protocol import EncoderConfig
from tasks.domain import EmbeddingSpec
from tasks.embedding.batches import FrameBatcher
from tasks.embedding.encoder import EncoderProcess
from tasks.embedding.vector_file import VectorCache
from tasks.embedding.video import VideoEmbedder
from tasks.frame_cache.extractor import FrameExtractor
from tasks.model.identity import TINY_ENCODER, read_model_info

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from reelabel.pool.decode_pool import DecodePool

_START_TIMEOUT_S = 900.0


@contextmanager
def tiny_embedder(pool: DecodePool, folder: Path) -> Iterator[VideoEmbedder]:
    """Yield an embedder of clips as in a run, with the demo's model, whose log is below `folder`; nothing is cached."""
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
            cache=VectorCache(objects=objects, root_uri=root),
            frames=FrameBatcher(encoder=encoder, batch_frames=config.batch_frames),
            spec=EmbeddingSpec(model=read_model_info(str(TINY_ENCODER)).identity),
            info=encoder.info(),
        )
