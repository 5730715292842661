"""Description of videos: the spec and the label sets of a run or a request, and the describer that they make."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from infra.settings import DescribeOptions
from infra.temporary import temporary_folder
from reelabel.errors import ConfigurationError, ObjectError
from reelabel.sources.object_store import ObjectStore
from tasks.description.banks import ACTIVITIES, MAX_BYTES, PLACES, read_bank
from tasks.description.describer import CutFiles, VideoDescriber
from tasks.description.scenes.detect import threshold_of
from tasks.domain import DescribeSpec
from tasks.embedding.bank_file import BankFiles
from tasks.embedding.encoder import read_encoder_info
from tasks.embedding.video import frame_pixels, open_embedder
from tasks.frame_cache.pool import KEPT_BYTES, open_extractor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from infra.settings import Settings
    from reelabel.pool.decode_pool import DecodePool
    from reelabel_engine.protocol import EncoderInfo
    from tasks.description.banks import Bank
    from tasks.description.pooling import TextBank
    from tasks.embedding.encoder import Encoder
    from tasks.model.identity import ModelInfo

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


def resolve_description(
    options: DescribeOptions, settings: Settings
) -> tuple[ModelInfo, DescribeSpec, Mapping[str, Bank]]:
    """Return the model's facts, the spec by the options, the settings and the defaults, and its banks by digest.

    The banks are kept on the store.
    """
    given = [each.model_dump(exclude_none=True) for each in (_DEFAULTS, settings.describe, options)]
    merged = DescribeOptions.model_validate(
        {name: value for each in given for name, value in each.items() if name in DescribeOptions.model_fields}
    )
    model_info = read_encoder_info(settings, merged.model)
    method = merged.scene_method or _SCENES[merged.method or "default"]
    threshold = threshold_of(method)
    objects, files = (
        ObjectStore(settings.store, settings.web),
        BankFiles.of(settings.store, python=settings.model.python),
    )
    banks = [_read(path, objects) for path in (merged.tags, merged.captions)]
    tags, captions = (files.save_texts(bank.texts) for bank in banks)
    spec = DescribeSpec(
        model=model_info.identity,
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
    return model_info, spec, {tags: banks[0], captions: banks[1]}


def open_describer(
    settings: Settings,
    pool: DecodePool,
    encoder: Encoder,
    info: EncoderInfo,
    *,
    spec: DescribeSpec,
    banks: tuple[TextBank, TextBank],
    stores: tuple[ObjectStore, ObjectStore] | None = None,
    charge: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> VideoDescriber:
    """Make a describer.

    `banks` are those of tags and of captions. `stores` are where videos are read, and where frames and vectors are;
    None opens both. `charge` measures the time in which the encoder works.
    """
    videos, objects = stores or (None, ObjectStore(settings.store))
    sampling = spec.sampling(max_pixels=frame_pixels(info))
    extractor = open_extractor(settings, pool, sampling, keep_bytes=KEPT_BYTES, videos=videos, files=objects)
    tags, captions = banks
    return VideoDescriber(
        embedder=open_embedder(settings, extractor, encoder, info, spec=spec, files=objects, charge=charge),
        cuts=CutFiles.of(settings.store, objects),
        spec=spec,
        tags=tags,
        captions=captions,
    )


def _read(uri: str | None, objects: ObjectStore) -> Bank:
    assert uri is not None
    if "://" not in uri:
        return read_bank(Path(uri).expanduser())
    with temporary_folder("bank") as folder:
        copy = folder / f"bank{Path(uri).suffix}"
        try:
            copy.write_bytes(objects.read(uri, max_bytes=MAX_BYTES))
        except ObjectError as error:
            raise ConfigurationError(f"Cannot read the bank {uri}: {error.message}") from None
        try:
            return read_bank(copy)
        except ConfigurationError as error:
            raise ConfigurationError(error.message.replace(str(copy), uri)) from None
