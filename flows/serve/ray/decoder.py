"""The deployment that decodes videos, and works requests out with the models of others."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from flows.serve.engines import with_uploads
from flows.serve.ray.calls import outcome_of
from flows.serve.ray.models import RemoteEngine, RemoteTowers
from flows.serve.requests import analyze, classify
from flows.serve.requests.analyzer import Analyzer
from flows.serve.requests.classifier import Classifier
from flows.serve.requests.uploads import Uploads
from infra.database.connect import connected
from infra.settings import load_settings
from infra.telemetry import start_metrics
from reelabel.temporary import temporary_folder
from tasks.frame_cache.pool import decode_pool

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flows.serve.requests.analyze import AnalyzeRequest
    from flows.serve.requests.classify import ClassifyRequest

_MIB = 1024**2


class Decoder:
    """The deployment that decodes videos in the sandbox, and keeps frames and embeddings in the caches."""

    async def __init__(self, engine: Any, encoder: Any) -> None:  # type: ignore[misc]  # noqa: ANN401 - Ray's
        """Open what `serve.load` needs, as the settings of this machine say.

        Args:
            engine: Handle of the deployment that answers questions; None answers none.
            encoder: Handle of the one that embeds frames; None describes no video.

        Raises:
            ConfigurationError: The settings conflict, or a bank cannot be used.
            ModelError: The model cannot be used.
        """
        await asyncio.to_thread(self._open, engine, encoder)  # other deployments cannot be waited for in the event loop

    def _open(self, engine: Any, encoder: Any) -> None:  # noqa: ANN401
        with ExitStack() as stack:
            folder = stack.enter_context(temporary_folder("upload"))
            settings = with_uploads(load_settings(), folder)
            start_metrics(settings.metrics)
            self._uploads = Uploads(folder, max_bytes=settings.serve.max_upload_mib * _MIB)
            pool = stack.enter_context(decode_pool(settings, processes=settings.extract.processes or 1, ahead=True))
            if encoder:
                self._analyzer = stack.enter_context(Analyzer(settings, pool=pool, towers=RemoteTowers(encoder)))
                self._analyzer.wait_ready()
            if engine:
                database = stack.enter_context(connected(settings.database))
                self._classifier = stack.enter_context(
                    Classifier(settings, pool=pool, database=database, engine=RemoteEngine(engine))
                )
                self._classifier.wait_ready()
            self._stack = stack.pop_all()

    def classify(self, asked: ClassifyRequest, video: bytes | None) -> object:
        """Answer a question, with the bytes of its video if that was uploaded."""
        with self._kept(video) as upload:
            return outcome_of(partial(classify.answer, self._classifier, asked, upload))

    def analyze(self, asked: AnalyzeRequest, video: bytes | None) -> object:
        """Describe a video, with its bytes if it was uploaded."""
        with self._kept(video) as upload:
            return outcome_of(partial(analyze.answer, self._analyzer, asked, upload))

    @contextmanager
    def _kept(self, video: bytes | None) -> Iterator[str | None]:
        """Yield the path of an uploaded video on this machine."""
        if video is None:
            yield None
            return
        with self._uploads.receive() as upload:
            upload.write(video)
            with self._uploads.keep(upload) as path:
                yield path

    def __del__(self) -> None:
        """End its processes."""
        if hasattr(self, "_stack"):
            self._stack.close()
