"""What embeds clips on this machine by the demo's towers, as a run does, without services."""

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
from tasks.domain import EmbeddingSpec
from tasks.embedding.backend import TowersOptions, towers_backend
from tasks.embedding.batches import FrameBatcher
from tasks.embedding.embedding_file import EmbeddingCache
from tasks.embedding.identity import TINY_TOWERS
from tasks.embedding.pack_file import PackFiles
from tasks.embedding.video import VideoEmbedder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from reelabel.pool.decode_pool import DecodePool


@contextmanager
def tiny_embedder(pool: DecodePool, folder: Path) -> Iterator[VideoEmbedder]:
    """Open the demo's towers, and what embeds clips by them; the embeddings are not kept.

    Args:
        pool: Decodes the clips.
        folder: For the log of the towers.
    """
    backend, objects = towers_backend(), ObjectStore(StoreSettings())
    card, options = backend.card(str(TINY_TOWERS)), TowersOptions(log_path=folder / "towers.log")
    with backend.open(card, options) as towers, TemporaryDirectory(prefix="reelabel-") as kept:
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
            cache=EmbeddingCache(objects=objects, root_uri=root),
            packs=PackFiles(objects=objects, root_uri=root),
            frames=FrameBatcher(towers=towers, batch_frames=options.batch_frames),
            spec=EmbeddingSpec(model=card.identity),
            info=towers.wait_ready(),
        )
