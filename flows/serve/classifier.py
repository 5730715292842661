"""What answers single questions: the model's engine, kept loaded, behind the extraction and inference of runs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Self

from flows.run.spec import engine_settings, make_spec
from flows.serve.answers import RequestRefusedError
from flows.shard.answer import answer_shard
from flows.shard.infer import MAX_CONCURRENT_GROUPS, AnswerContext
from reelabel.errors import ConfigurationError
from tasks.domain import ONE_VIDEO, Shard
from tasks.domain.chunk_rule import choice_of
from tasks.frame_cache.pool import coverage_thresholds, open_extractor
from tasks.model.backend import backend_of, open_backend
from tasks.results.evaluation.routes import escalation_margin

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Engine

    from flows.run.parameters import SpecOverrides
    from flows.shard.answer import AnsweredShard
    from infra.settings import Settings
    from reelabel.pool.decode_pool import DecodePool
    from tasks.domain import Job, RunSpec
    from tasks.model.protocol import EngineInfo

# Specs that are kept, each with the options that some request had.
_SPECS = 256


class Classifier:
    """Answers single questions; a context manager. Thread-safe."""

    def __init__(self, settings: Settings, *, pool: DecodePool, database: Engine) -> None:
        """Read the model's card; nothing is loaded yet.

        Args:
            settings: The model, and how it is asked unless a request says otherwise.
            pool: Decodes.
            database: Has the fitted margins.

        Raises:
            ModelError: The model cannot be used.
            ConfigurationError: The settings conflict.
        """
        self._settings = settings
        self._database = database
        self._backend = backend_of(settings)
        self.card = self._backend.card(None, settings)
        self.spec = make_spec(self.card, settings)
        keep_bytes = settings.model.batch_mib * 1024**2
        # A video at fault may be another one at the next request.
        self._extractor = open_extractor(settings, pool, self.spec.sampling, keep_bytes=keep_bytes, keep_faults=0)
        self._engine = open_backend(
            self._backend,
            self.card,
            engine_settings(settings, self.spec),
            sampling=self.spec.sampling,
            media=ONE_VIDEO,
        )
        self._context_of = lru_cache(_SPECS)(self._make_context)
        self._stack = ExitStack()
        self._workers = ThreadPoolExecutor(max(4, settings.serve.max_requests), thread_name_prefix="prepare")

    def __enter__(self) -> Self:
        """Begin to load the engine."""
        self._stack.enter_context(self._engine)
        self._stack.callback(self._workers.shutdown, wait=False, cancel_futures=True)
        return self

    def __exit__(self, *_raised: object) -> None:
        """End it."""
        self._stack.close()

    def wait_ready(self) -> EngineInfo:
        """Wait until questions can be answered.

        Raises:
            ModelError: The model cannot be loaded.
            ConfigurationError: The server cannot be reached.
        """
        return self._engine.wait_ready()

    def spec_of(self, overrides: SpecOverrides) -> RunSpec:
        """Return the spec by which a request is answered.

        Raises:
            RequestRefusedError: Its options conflict.
        """
        return self._refusing(overrides).spec

    def answer(self, job: Job, overrides: SpecOverrides, *, go_on: Callable[[], None]) -> AnsweredShard:
        """Answer a job.

        Args:
            job: The job.
            overrides: How it is asked, where that differs from the settings.
            go_on: Called between the stages.

        Raises:
            RequestRefusedError: The options conflict.
            TransientError: The store or the engine is unavailable.
        """
        context = self._refusing(overrides)
        if rule := context.spec.chunk_rule:
            job = replace(job, chunk_s=context.spec.chunk_s)
            _require_choice(rule, job.choices)
        return answer_shard(Shard(index=0, jobs=(job,)), context, workers=self._workers, go_on=go_on)

    def _refusing(self, overrides: SpecOverrides) -> AnswerContext:
        try:
            return self._context_of(overrides)
        except ConfigurationError as error:
            raise RequestRefusedError(
                error.message, code="invalid_request", status=HTTPStatus.UNPROCESSABLE_ENTITY
            ) from None

    def _make_context(self, overrides: SpecOverrides) -> AnswerContext:
        spec = make_spec(self.card, self._settings, overrides)
        if spec.relevance:
            raise ConfigurationError(
                f"The sampler {spec.sampling.sampler} is for runs: this service loads no image-text model beside the "
                "engine; use another sampler."
            )
        sampling, model = spec.sampling, self._settings.model
        extractor = replace(
            self._extractor, sampling=sampling, thresholds=coverage_thresholds(self._settings, sampling)
        )
        return AnswerContext(
            spec=spec,
            cache=extractor.cache,
            pool=extractor.pool,
            limits=extractor.limits,
            backend=self._engine,
            batch_bytes=model.batch_mib * 1024**2 // MAX_CONCURRENT_GROUPS,
            extractor=extractor,
            escalate_below=escalation_margin(self._database, spec),
        )


def _require_choice(rule: str, choices: tuple[str, ...]) -> None:
    """Refuse a rule about a choice that the job does not have."""
    wanted = choice_of(rule)
    if wanted is not None and wanted not in choices:
        raise RequestRefusedError(
            f"chunk_rule: {rule} names none of the choices.",
            code="invalid_request",
            status=HTTPStatus.UNPROCESSABLE_ENTITY,
        )
