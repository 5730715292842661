"""What embeds and describes videos: options made a spec, its banks, and what works by them."""

from __future__ import annotations

from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field, fields
from pathlib import Path
from threading import Semaphore
from typing import TYPE_CHECKING

from infra.settings.describe import DescribeOptions
from reelabel.errors import ConfigurationError, ObjectError
from reelabel.frames.extractor import FrameExtractor
from reelabel.frames.look import IndexReader
from reelabel.sources.object_store import ObjectStore
from reelabel.temporary import temporary_folder
from tasks.description.banks import ACTIVITIES, MAX_BYTES, PLACES, read_bank
from tasks.description.describer import VideoDescriber
from tasks.description.outline import OutlineFiles
from tasks.description.pooling import EmbeddedBank
from tasks.description.scene_file import SceneFiles
from tasks.description.scenes.detect import threshold_of
from tasks.domain import DescribeSpec
from tasks.embedding.backend import towers_card
from tasks.embedding.bank_file import BankFiles
from tasks.embedding.batches import REQUESTS_PER_TOWERS, FrameBatcher
from tasks.embedding.embedding_file import EmbeddingCache
from tasks.embedding.opened import open_towers
from tasks.embedding.pack_file import PackFiles
from tasks.embedding.video import VideoEmbedder, frame_pixels
from tasks.frame_cache.pool import open_extractor
from tasks.relevance.extractor import RelevantExtractor
from tasks.relevance.texts import TextEmbedder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from infra.settings import Settings
    from reelabel.pool.decode_pool import DecodePool
    from reelabel_engine.protocol import TowersInfo
    from tasks.description.banks import Bank
    from tasks.domain import EmbeddingSpec, ModelIdentity
    from tasks.embedding.backend import EmbeddingBackend
    from tasks.model.identity import ModelCard

_DEFAULTS = DescribeOptions(
    tags=str(PLACES),
    captions=str(ACTIVITIES),
    top_k=5,
    chunk_s=10.0,
    frames_per_chunk=16,
    sampler="dense",
    method="default",
)
_SCENES = {"default": "auto", "published": "published"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedDescription:
    """What videos are described by.

    Attributes:
        card: The model.
        spec: How they are described.
        banks: Its banks, by digest.
    """

    card: ModelCard
    spec: DescribeSpec
    banks: Mapping[str, Bank] = field(repr=False)


def resolve_description(options: DescribeOptions, settings: Settings) -> ResolvedDescription:
    """Resolve the spec from the options, the settings and the defaults, in this order; keep the banks on the store.

    Raises:
        ConfigurationError: A bank or a method cannot be used.
        ModelError: The model cannot be used.
    """
    given = [each.model_dump(exclude_none=True) for each in (_DEFAULTS, settings.describe, options)]
    merged = DescribeOptions.model_validate(
        {name: value for each in given for name, value in each.items() if name in DescribeOptions.model_fields}
    )
    card = towers_card(settings, merged.model)
    method = merged.scene_method or _SCENES[merged.method or "default"]
    threshold = threshold_of(method)
    objects, files = (
        ObjectStore(settings.store, settings.web),
        BankFiles.of(settings.store, python=settings.model.python),
    )
    banks = [_read(path, objects) for path in (merged.tags, merged.captions)]
    tags, captions = (files.keep_texts(bank.texts) for bank in banks)
    spec = DescribeSpec(
        model=card.identity,
        sampler=merged.sampler or "dense",
        seconds_per_chunk=merged.chunk_s or 0,
        frames_per_chunk=merged.frames_per_chunk or 0,
        tags=tags,
        captions=captions,
        top_k=merged.top_k or 0,
        method=merged.method or "default",
        scene_method=method,
        scene_threshold=threshold if merged.scene_threshold is None else merged.scene_threshold,
    )
    return ResolvedDescription(card=card, spec=spec, banks={tags: banks[0], captions: banks[1]})


def embed_bank(
    bank: Bank,
    towers: EmbeddingBackend,
    files: BankFiles,
    model: ModelIdentity,
) -> EmbeddedBank:
    """Return a bank with its vectors: those of an earlier run, or new ones, which are kept.

    Args:
        bank: The bank.
        towers: Embed its texts.
        files: Banks of earlier runs.
        model: The model of the towers.

    Raises:
        ConfigurationError: A text is too long for the model.
        ModelError: The model cannot be loaded.
    """
    if found := files.find_vectors(bank.texts, model):
        return found
    bank.check_lengths(towers.count_tokens(bank.texts), towers.wait_ready().max_tokens)
    embedded = EmbeddedBank(texts=bank.texts, vectors=towers.embed_texts(bank.texts))
    files.keep_vectors(embedded, model)
    return embedded


def open_describer(
    settings: Settings,
    pool: DecodePool,
    towers: EmbeddingBackend,
    info: TowersInfo,
    *,
    spec: DescribeSpec,
    banks: tuple[EmbeddedBank, EmbeddedBank],
    stores: tuple[ObjectStore, ObjectStore] | None = None,
    charge: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> VideoDescriber:
    """Return what describes videos.

    Args:
        settings: Where videos, frames and embeddings are.
        pool: Decodes.
        towers: Of the model, loaded.
        info: What they report.
        spec: How videos are described.
        banks: Of tags, and of captions.
        stores: Where videos are read, and where frames, embeddings and outlines are; None opens both.
        charge: Measures the time in which the towers work.
    """
    videos, objects = stores or (None, ObjectStore(settings.store))
    sampling = spec.sampling(max_pixels=frame_pixels(info))
    keep_bytes = settings.model.batch_mib * 1024**2
    extractor = open_extractor(settings, pool, sampling, keep_bytes=keep_bytes, videos=videos, files=objects)
    tags, captions = banks
    return VideoDescriber(
        embedder=open_embedder(settings, extractor, towers, info, spec=spec, files=objects, charge=charge),
        scene_files=SceneFiles.of(settings.store, objects),
        outlines=OutlineFiles.of(settings.store, objects),
        spec=spec,
        tags=tags,
        captions=captions,
    )


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
        reader=IndexReader.beside(extractor),
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


def _read(place: str | None, objects: ObjectStore) -> Bank:
    assert place is not None
    if "://" not in place:
        return read_bank(Path(place).expanduser())
    with temporary_folder("bank") as folder:
        copy = folder / f"bank{Path(place).suffix}"
        try:
            copy.write_bytes(objects.read(place, max_bytes=MAX_BYTES))
        except ObjectError as error:
            raise ConfigurationError(f"Cannot read the bank {place}: {error.message}") from None
        try:
            return read_bank(copy)
        except ConfigurationError as error:
            raise ConfigurationError(error.message.replace(str(copy), place)) from None
