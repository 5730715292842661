"""What describes single videos: an image-text encoder and its banks, kept loaded."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Self

from flows.run.describing import open_describer, resolve_description
from infra.settings.describe import DescribeOptions
from tasks.embedding.bank_file import BankFiles
from tasks.embedding.encoder import open_encoder

if TYPE_CHECKING:
    from infra.settings import Settings
    from reelabel.pool.decode_pool import DecodePool
    from reelabel_engine.protocol import EncoderInfo
    from tasks.description.described import DescribedVideo
    from tasks.description.describer import VideoDescriber
    from tasks.description.pooling import EmbeddedBank
    from tasks.domain import DescribeSpec, Job
    from tasks.embedding.encoder import Encoder

_DESCRIBERS = 64


class Analyzer:
    """Describes single videos; a context manager. Thread-safe."""

    def __init__(self, settings: Settings, *, pool: DecodePool, encoder: Encoder | None = None) -> None:
        """Read the model's card and the banks; nothing is loaded yet.

        Args:
            settings: The model, the banks, and how videos are described unless a request says otherwise.
            pool: Decodes.
            encoder: That of another machine; None loads it on this one.

        Raises:
            ModelError: The model cannot be used.
            ConfigurationError: A bank cannot be used.
        """
        self._settings = settings
        self._pool = pool
        self._resolved = resolve_description(DescribeOptions(), settings)
        self._encoder = encoder or open_encoder(settings, self._resolved.card)
        self._describer_of = lru_cache(_DESCRIBERS)(self._open)
        self._stack = ExitStack()
        self._info: EncoderInfo | None = None
        self._banks: tuple[EmbeddedBank, EmbeddedBank] | None = None

    @property
    def spec(self) -> DescribeSpec:
        """How videos are described unless a request says otherwise."""
        return self._resolved.spec

    def __enter__(self) -> Self:
        """Begin to load the encoder."""
        self._stack.enter_context(closing(self._encoder))
        self._encoder.start()
        return self

    def __exit__(self, *_raised: object) -> None:
        """End it."""
        self._stack.close()

    def wait_ready(self) -> EncoderInfo:
        """Wait until videos can be described.

        Raises:
            ModelError: The model cannot be loaded.
            ConfigurationError: A text of a bank is too long for it.
        """
        self._info = self._encoder.info()
        files = BankFiles.of(self._settings.store, python=self._settings.model.python)
        banks, spec = self._resolved.banks, self.spec
        tags, captions = (
            files.embed(banks[digest], self._encoder, spec.model)[0] for digest in (spec.tags, spec.captions)
        )
        self._banks = tags, captions
        return self._info

    def describe(self, job: Job, *, chunk_s: float | None, num_frames: int | None) -> DescribedVideo:
        """Describe a job's video.

        Args:
            job: The job.
            chunk_s: Seconds of a chunk; None as the settings say.
            num_frames: Frames of a chunk; None as the settings say.

        Raises:
            VideoError: The video cannot be used; see its code.
            InferenceError: The encoder dies on its frames.
            TransientError: The store or the encoder is unavailable.
        """
        spec = self.spec
        describer = self._describer_of(chunk_s or spec.seconds_per_chunk, num_frames or spec.frames_per_chunk)
        return describer.describe(job, 0)

    def _open(self, chunk_s: float, num_frames: int) -> VideoDescriber:
        assert self._info is not None
        assert self._banks is not None
        spec = self.spec.model_copy(update={"seconds_per_chunk": chunk_s, "frames_per_chunk": num_frames})
        describer = open_describer(self._settings, self._pool, self._encoder, self._info, spec=spec, banks=self._banks)
        # A video at fault may be another one at the next request, or its server may be back.
        return replace(describer, embedder=describer.embedder.forgetting())
