"""What answers single questions: the model's engine, kept loaded, behind the extraction and inference of runs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Self

from flows.run.spec import engine_settings, make_spec
from flows.serve.refusals import RequestRefusedError
from flows.shard.answer import answer_shard
from flows.shard.answering import AnswerContext
from flows.shard.infer import MAX_CONCURRENT_GROUPS
from reelabel.errors import ConfigurationError
from tasks.domain import ONE_VIDEO, Shard, WallClockProfile
from tasks.domain.chunk_rule import choice_of
from tasks.frame_cache.pool import coverage_thresholds, open_extractor
from tasks.model.backend import backend_of, open_backend
from tasks.results.evaluation.routes import escalation_margin

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from flows.run.parameters import SpecOverrides
    from infra.settings import Settings
    from reelabel.pool.decode_pool import DecodePool
    from reelabel_engine.protocol import EngineInfo
    from tasks.domain import Job, RunSpec
    from tasks.live.model import LiveModel
    from tasks.model.backend import InferenceBackend
    from tasks.results.write import EndedShard

# Specs that are kept, each with the options that some request had.
_SPECS = 256


class Classifier:
    """Answers single questions; a context manager. Thread-safe.

    Attributes:
        live: What answers live sessions by the same engine; None without any, and before it is entered.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        pool: DecodePool,
        database: Engine,
        live_sessions: int = 0,
        engine: InferenceBackend | None = None,
    ) -> None:
        """Read the model's card; nothing is loaded yet.

        Args:
            settings: The model, and how it is asked unless a request says otherwise.
            pool: Decodes.
            database: Has the fitted margins.
            live_sessions: Maximum live sessions at once.
            engine: That of another machine; None loads one on this one.

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
        self._engine = engine
        self.live: LiveModel | None = None
        self._live_sessions = live_sessions
        self._find_context = lru_cache(_SPECS)(self._make_context)
        self._stack = ExitStack()
        self._workers = ThreadPoolExecutor(max(4, settings.serve.max_requests), thread_name_prefix="prepare")

    def __enter__(self) -> Self:
        """Begin to load the engine."""
        self._stack.callback(self._workers.shutdown, wait=False, cancel_futures=True)
        if self._engine is None:
            opened, self.live = self._open(engine_settings(self._settings, self.spec))
            self._engine = self._stack.enter_context(opened)
        return self

    def _open(self, settings: Settings) -> tuple[InferenceBackend, LiveModel | None]:
        sampling = self.spec.sampling
        if self._live_sessions:
            return self._backend.open_live(self.card, settings, sessions=self._live_sessions, sampling=sampling)
        return open_backend(self._backend, self.card, settings, sampling=sampling, media=ONE_VIDEO), None

    def __exit__(self, *_raised: object) -> None:
        """End it."""
        self._stack.close()

    def wait_ready(self) -> EngineInfo:
        """Wait until questions can be answered.

        Raises:
            ModelError: The model cannot be loaded.
            ConfigurationError: The server cannot be reached.
        """
        assert self._engine
        return self._engine.wait_ready()

    def spec_of(self, overrides: SpecOverrides) -> RunSpec:
        """Return the spec by which a request is answered.

        Raises:
            RequestRefusedError: Its options conflict.
        """
        return self._context(overrides).spec

    def answer(self, job: Job, overrides: SpecOverrides) -> tuple[EndedShard, dict[str, float]]:
        """Answer a job.

        Args:
            job: The job.
            overrides: How it is asked, where that differs from the settings.

        Raises:
            RequestRefusedError: The options conflict.
            TransientError: The store or the engine is unavailable.
        """
        context = replace(self._context(overrides), profile=WallClockProfile())
        return answer_shard(_shard_of(job, context.spec), context, workers=self._workers)

    def _context(self, overrides: SpecOverrides) -> AnswerContext:
        try:
            return self._find_context(overrides)
        except ConfigurationError as error:
            raise RequestRefusedError(
                error.message, code="invalid_request", status=HTTPStatus.UNPROCESSABLE_ENTITY
            ) from None

    def _make_context(self, overrides: SpecOverrides) -> AnswerContext:
        spec = make_spec(self.card, self._settings, overrides)
        if spec.relevance:
            raise ConfigurationError(
                f"The sampler {spec.sampling.sampler} works only in runs: this service loads no image-text model "
                "next to the engine; use another sampler."
            )
        thresholds = coverage_thresholds(self._settings, spec.sampling)
        assert self._engine
        return AnswerContext(
            spec=spec,
            backend=self._engine,
            batch_bytes=self._settings.model.batch_mib * 1024**2 // MAX_CONCURRENT_GROUPS,
            extractor=replace(self._extractor, sampling=spec.sampling, thresholds=thresholds),
            escalate_below=escalation_margin(self._database, spec),
        )


def _shard_of(job: Job, spec: RunSpec) -> Shard:
    """Return a shard of one job, which is cut if the spec says so."""
    if spec.chunk_rule:
        _require_choice(spec.chunk_rule, job.choices)
        job = replace(job, chunk_s=spec.chunk_s)
    return Shard(index=0, jobs=(job,))


def _require_choice(rule: str, choices: tuple[str, ...]) -> None:
    """Refuse a rule about a choice that the job does not have."""
    wanted = choice_of(rule)
    if wanted is not None and wanted not in choices:
        raise RequestRefusedError(
            f"chunk_rule: {rule} names none of the choices.",
            code="invalid_request",
            status=HTTPStatus.UNPROCESSABLE_ENTITY,
        )
