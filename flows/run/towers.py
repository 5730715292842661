"""What embeds videos by the towers of an image-text model, and chooses frames by what is asked."""

from __future__ import annotations

from contextlib import closing, contextmanager, nullcontext
from dataclasses import fields
from threading import Semaphore
from typing import TYPE_CHECKING

from reelabel.frames.extractor import FrameExtractor
from tasks.embedding.backend import towers_card
from tasks.embedding.batches import REQUESTS_PER_TOWERS, FrameBatcher
from tasks.embedding.embedding_file import EmbeddingCache
from tasks.embedding.opened import open_towers
from tasks.embedding.pack_file import PackFiles
from tasks.embedding.video import VideoEmbedder
from tasks.relevance.extractor import RelevantExtractor
from tasks.relevance.texts import TextEmbedder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from infra.settings import Settings
    from reelabel.sources.object_store import ObjectStore
    from reelabel_engine.protocol import TowersInfo
    from tasks.domain import EmbeddingSpec
    from tasks.embedding.backend import EmbeddingBackend


def open_embedder(
    settings: Settings,
    extractor: FrameExtractor,
    towers: EmbeddingBackend,
    info: TowersInfo,
    *,
    spec: EmbeddingSpec,
    files: ObjectStore,
    charge: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> VideoEmbedder:
    """Return what embeds the videos that an extractor prepares, by the loaded towers.

    `charge` measures the time in which the towers work.
    """
    return VideoEmbedder(
        extractor=extractor,
        reader=extractor,
        cache=EmbeddingCache.of(settings.store, files),
        packs=PackFiles.of(settings.store, files),
        frames=FrameBatcher(
            towers=towers,
            batch_frames=settings.describe.batch_frames,
            charge=charge,
            turns=Semaphore(REQUESTS_PER_TOWERS * max(1, info.gpus)),
        ),
        spec=spec,
        info=info,
    )


@contextmanager
def relevant_extraction(
    settings: Settings, extractor: FrameExtractor, spec: EmbeddingSpec, *, files: ObjectStore
) -> Iterator[RelevantExtractor]:
    """Load the towers, and yield an extractor that chooses frames by what is asked, with the options of another one.

    Raises:
        ModelError: The model cannot be loaded, or has no text tower.
        ConfigurationError: There are fewer GPUs than towers, or no such backend.
    """
    with closing(open_towers(settings, towers_card(settings))) as towers:
        towers.start()
        info = towers.wait_ready()
        yield RelevantExtractor(
            **{each.name: getattr(extractor, each.name) for each in fields(FrameExtractor)},
            embedder=open_embedder(settings, extractor, towers, info, spec=spec, files=files),
            texts=TextEmbedder(towers=towers, max_tokens=info.max_tokens),
        )
