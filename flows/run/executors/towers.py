"""The towers of an image-text model, and what embeds videos by them."""

from __future__ import annotations

from contextlib import closing, contextmanager, nullcontext
from dataclasses import fields
from typing import TYPE_CHECKING

from reelabel.frames.extractor import FrameExtractor
from reelabel.frames.look import IndexReader
from reelabel.sources.object_store import ObjectStore
from tasks.embedding.backend import TowersOptions, towers_backend
from tasks.embedding.batches import FrameBatcher
from tasks.embedding.embedding_file import EmbeddingCache
from tasks.embedding.fleet import TowersFleet
from tasks.embedding.video import VideoEmbedder
from tasks.model.engine.devices import assign_gpus, visible_gpus
from tasks.relevance.extractor import RelevantExtractor
from tasks.relevance.texts import TextEmbedder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from infra.settings import Settings
    from tasks.domain import EmbeddingSpec
    from tasks.embedding.backend import EmbeddingBackend
    from tasks.embedding.protocol import TowersInfo
    from tasks.model.identity import ModelCard


def open_towers(settings: Settings, card: ModelCard) -> EmbeddingBackend:
    """Create the towers of a model, without starting them.

    Raises:
        ConfigurationError: There are fewer GPUs than towers, or no such backend.
    """
    backend, chosen = towers_backend(settings.describe.backend), settings.describe
    shares = assign_gpus(visible_gpus(), engines=chosen.engines, tensor_parallel_size=1)
    members = [
        backend.open(
            card,
            TowersOptions(
                log_path=settings.home / "logs" / ("towers.log" if len(shares) == 1 else f"towers-{number}.log"),
                log_as_json=settings.log.format == "json",
                start_timeout_s=settings.model.start_timeout_s,
                answer_timeout_s=settings.model.answer_timeout_s,
                batch_frames=chosen.batch_frames,
                devices=devices,
            ),
        )
        for number, devices in enumerate(shares)
    ]
    return members[0] if len(members) == 1 else TowersFleet(members)


def open_embedder(
    settings: Settings,
    extractor: FrameExtractor,
    towers: EmbeddingBackend,
    info: TowersInfo,
    *,
    spec: EmbeddingSpec,
    charge: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> VideoEmbedder:
    """Return what embeds videos.

    Args:
        settings: Where embeddings are kept.
        extractor: Prepares their frames.
        towers: Of the model, loaded.
        info: What they report.
        spec: How frames are chosen, and the model.
        charge: Measures the time in which the towers work.
    """
    assert settings.store.uri is not None
    return VideoEmbedder(
        extractor=extractor,
        reader=IndexReader(
            objects=extractor.objects,
            pool=extractor.pool,
            limits=extractor.limits,
            cache=extractor.cache,
            ranges_min_bytes=extractor.ranges_min_bytes,
            allow_roots=extractor.allow_roots,
        ),
        cache=EmbeddingCache(ObjectStore(settings.store), settings.store.uri, seal=settings.store.seal),
        frames=FrameBatcher(towers=towers, batch_frames=settings.describe.batch_frames, charge=charge),
        spec=spec,
        info=info,
    )


@contextmanager
def relevant_extraction(
    settings: Settings, extractor: FrameExtractor, spec: EmbeddingSpec
) -> Iterator[RelevantExtractor]:
    """Load the towers, and yield an extractor that chooses frames by what is asked, with the options of another one.

    Raises:
        ModelError: The model cannot be loaded, or has no text tower.
        ConfigurationError: There are fewer GPUs than towers, or no such backend.
    """
    describe = settings.describe
    card = towers_backend(describe.backend).card(describe.model, revision=describe.revision)
    with closing(open_towers(settings, card)) as towers:
        towers.start()
        info = towers.wait_ready()
        yield RelevantExtractor(
            **{each.name: getattr(extractor, each.name) for each in fields(FrameExtractor)},
            embedder=open_embedder(settings, extractor, towers, info, spec=spec),
            texts=TextEmbedder(towers=towers, max_tokens=info.max_tokens),
        )
