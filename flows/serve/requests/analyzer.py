"""What describes single videos: the towers of an image-text model and its banks, kept loaded."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Self

from flows.run.describing import embed_bank, open_describer, resolve_description
from infra.settings import DescribeOptions
from tasks.embedding.bank_file import BankFiles
from tasks.embedding.opened import open_towers

if TYPE_CHECKING:
    from infra.settings import Settings
    from reelabel.pool.decode_pool import DecodePool
    from reelabel_engine.protocol import TowersInfo
    from tasks.description.described import DescribedVideo
    from tasks.description.describer import VideoDescriber
    from tasks.description.pooling import EmbeddedBank
    from tasks.domain import DescribeSpec, Job
    from tasks.embedding.backend import EmbeddingBackend

_DESCRIBERS = 64


class Analyzer:
    """Describes single videos; a context manager. Thread-safe."""

    def __init__(self, settings: Settings, *, pool: DecodePool, towers: EmbeddingBackend | None = None) -> None:
        """Read the model's card and the banks; nothing is loaded yet.

        Args:
            settings: The model, the banks, and how videos are described unless a request says otherwise.
            pool: Decodes.
            towers: Those of another machine; None loads them on this one.

        Raises:
            ModelError: The model cannot be used.
            ConfigurationError: A bank cannot be used.
        """
        self._settings = settings
        self._pool = pool
        self._resolved = resolve_description(DescribeOptions(), settings)
        self._towers = towers or open_towers(settings, self._resolved.card)
        self._describer_of = lru_cache(_DESCRIBERS)(self._open)
        self._stack = ExitStack()
        self._info: TowersInfo | None = None
        self._banks: tuple[EmbeddedBank, EmbeddedBank] | None = None

    @property
    def spec(self) -> DescribeSpec:
        """How videos are described unless a request says otherwise."""
        return self._resolved.spec

    def __enter__(self) -> Self:
        """Begin to load the towers."""
        self._stack.enter_context(closing(self._towers))
        self._towers.start()
        return self

    def __exit__(self, *_raised: object) -> None:
        """End them."""
        self._stack.close()

    def wait_ready(self) -> TowersInfo:
        """Wait until videos can be described.

        Raises:
            ModelError: The model cannot be loaded.
            ConfigurationError: A text of a bank is too long for it.
        """
        self._info, files = (
            self._towers.wait_ready(),
            BankFiles.of(self._settings.store, python=self._settings.model.python),
        )
        banks, spec = self._resolved.banks, self.spec
        self._banks = (
            embed_bank(banks[spec.tags], self._towers, files, spec.model),
            embed_bank(banks[spec.captions], self._towers, files, spec.model),
        )
        return self._info

    def describe(self, job: Job, *, chunk_s: float | None, num_frames: int | None) -> DescribedVideo:
        """Describe a job's video.

        Args:
            job: The job.
            chunk_s: Seconds of a chunk; None as the settings say.
            num_frames: Frames of a chunk; None as the settings say.

        Raises:
            VideoError: The video cannot be used; see its code.
            InferenceError: The towers die on its frames.
            TransientError: The store or the towers are unavailable.
        """
        spec = self.spec
        describer = self._describer_of(chunk_s or spec.seconds_per_chunk, num_frames or spec.frames_per_chunk)
        return describer.describe(job, 0)

    def _open(self, chunk_s: float, num_frames: int) -> VideoDescriber:
        assert self._info is not None
        assert self._banks is not None
        spec = self.spec.model_copy(update={"seconds_per_chunk": chunk_s, "frames_per_chunk": num_frames})
        describer = open_describer(self._settings, self._pool, self._towers, self._info, spec=spec, banks=self._banks)
        # A video at fault may be another one at the next request, or its server may be back.
        return replace(describer, embedder=describer.embedder.forgetting())
