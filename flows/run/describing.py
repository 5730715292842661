"""Descriptions of videos, in runs and single requests: resolves the spec and its banks, and opens the describer."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from infra.temporary import temporary_folder
from reelabel.errors import ConfigurationError, ObjectError
from reelabel.sources.object_info import expand_home, redact_uri, scheme_of
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

    from infra.settings import DescribeOptions, Settings
    from reelabel.pool.decode_pool import DecodePool
    from reelabel_engine.protocol import EncoderInfo
    from tasks.description.banks import Bank
    from tasks.description.pooling import TextBank
    from tasks.embedding.encoder import Encoder
    from tasks.model.identity import ModelInfo

# Fields of a spec, and the options that set them.
_OPTIONS = {
    "sampler": "sampler",
    "seconds_per_chunk": "chunk_s",
    "frames_per_chunk": "frames_per_chunk",
    "top_k": "top_k",
    "method": "method",
}


def resolve_description(
    options: DescribeOptions, settings: Settings
) -> tuple[ModelInfo, DescribeSpec, Mapping[str, Bank]]:
    """Resolve the spec from the options, the settings and the defaults, and save its banks on the store.

    Returns:
        The model, the spec, and the banks by digest.
    """
    chosen = settings.describe.model_dump(exclude_none=True) | options.model_dump(exclude_none=True)
    model_info = read_encoder_info(settings, chosen.get("model"))
    method = chosen.get("scene_method") or scene_method_of(chosen.get("method", "default"))
    threshold = threshold_of(method)
    objects = ObjectStore(settings.store, settings.web)
    files = BankFiles.of(settings.store, python=settings.model.python)
    named = (chosen.get("tags", str(PLACES)), chosen.get("captions", str(ACTIVITIES)))
    banks = [_read(path, objects) for path in named]
    tags, captions = (files.save_texts(bank.texts) for bank in banks)
    spec = DescribeSpec(
        model=model_info.identity,
        tags=tags,
        captions=captions,
        scene_method=method,
        scene_threshold=chosen.get("scene_threshold", threshold),
        **{field: chosen[option] for field, option in _OPTIONS.items() if option in chosen},
    )
    return model_info, spec, {tags: banks[0], captions: banks[1]}


def scene_method_of(method: str) -> str:
    """Return the default method of finding scene changes for a method of describing chunks."""
    return "published" if method == "published" else "auto"


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
    """Open a describer.

    `banks` are those of tags and of captions. `stores` are the stores of videos, and of frames and vectors; None opens
    both. `charge` returns a context manager that measures the encoder's time.
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


def _read(uri: str, objects: ObjectStore) -> Bank:
    if "://" not in uri:
        return read_bank(expand_home(uri))
    is_web = (scheme_of(uri) or "").lower() in {"http", "https"}  # whose query is not part of the name
    with temporary_folder("bank") as folder:
        copy = folder / f"bank{Path(urlsplit(uri).path if is_web else uri).suffix}"
        try:
            copy.write_bytes(objects.read(uri, max_bytes=MAX_BYTES))
        except ObjectError as error:
            raise ConfigurationError(f"Cannot read the bank {redact_uri(uri)}: {error.message}") from None
        try:
            return read_bank(copy)
        except ConfigurationError as error:
            raise ConfigurationError(error.message.replace(str(copy), redact_uri(uri))) from None
