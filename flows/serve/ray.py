"""The service as an application of Ray Serve: `serve run flows.serve.ray:application`.

Four deployments scale independently: the ingress, which receives requests; the decoder, which answers them with the
models of the engine and the encoder; and these two. A fifth, with one replica, holds the streams whose parts different
decoders describe.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from http import HTTPStatus
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from ray import serve
from ray.exceptions import RayActorError, RayTaskError
from ray.serve.config import AutoscalingConfig, BackpressureConfig
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError

from flows.run.spec import engine_settings, make_spec
from flows.serve.app import make_app
from flows.serve.engines import with_uploads
from flows.serve.errors import RequestError
from flows.serve.requests import analyze, classify
from flows.serve.requests.analyze import Analyzer, analyze_router
from flows.serve.requests.body import Uploads
from flows.serve.requests.classify import Classifier, classify_router
from flows.serve.requests.handle import open_service, with_unattributed
from flows.serve.requests.streams import Streams
from infra.database.connect import connected
from infra.settings import load_settings
from infra.telemetry import start_telemetry
from infra.temporary import temporary_folder
from infra.validation import first_fault
from reelabel.errors import ConfigurationError, ReelabelError
from reelabel.waiting import AbandonedError, raise_if_abandoned
from reelabel_engine.errors import ModelError
from reelabel_engine.protocol import EngineTimes
from tasks.embedding.encoder import open_encoder, read_encoder_info
from tasks.frame_cache.pool import decode_pool
from tasks.model.backend import InferenceBackend, backend_of
from tasks.model.pool import Lifetime

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np
    import numpy.typing as npt
    from fastapi import FastAPI

    from flows.serve.requests.analyze import AnalyzeRequest
    from flows.serve.requests.classify import ClassifyRequest
    from flows.serve.requests.streams import StreamState
    from infra.settings import Settings
    from reelabel_engine.protocol import Batch, EncoderInfo, EngineInfo
    from tasks.embedding.encoder import EmbeddedTexts
    from tasks.model.backend import Reply

Result = TypeVar("Result")
_MIB = 1024**2
_RETRY_AFTER_S = 5.0
_POLL_S = 0.25
_MAX_REPLICAS = 8
# Requests in progress per process of a decoder replica: some are waiting for models.
_REQUESTS_PER_PROCESS = 4
# Share of a core, so that one replica of each deployment fits on two cores: the ingress, and a model without a GPU.
_INGRESS_CPUS, _MODEL_CPUS = 0.2, 0.4
# A replica of the ingress itself refuses requests without a slot, with its own message.
_REFUSED_PER_SLOT = 8
_READS_OF_STREAMS = 1_000  # calls in progress, each of which takes microseconds


class Arguments(BaseModel):
    """Arguments of the application for `serve run`."""

    model_config = ConfigDict(extra="forbid")

    gpus: bool = Field(default=True, description="Whether the engine and the encoder take GPUs.")


def application(arguments: dict[str, str]) -> serve.Application:
    """Build the application from `Arguments`; each of its replicas reads the settings of its own machine.

    Raises:
        ConfigurationError: The arguments or settings are invalid, or there is no authentication.
    """
    try:
        chosen = Arguments.model_validate(arguments)
    except ValidationError as error:
        where, value, clause = first_fault(error)
        raise ConfigurationError(f"Argument {where} {value}: {clause}.") from None
    settings = _checked(load_settings())
    load, model, processes = settings.serve.load, settings.model, settings.extract.processes or 1
    slots = settings.serve.max_requests
    engine = encoder = streams = None
    if "classify" in load:
        has_engine = chosen.gpus and model.backend != "openai"
        gpus = model.tensor_parallel_size * _count(model.engines) if has_engine else 0
        engine = _deploy(Engine, settings, target=slots, cpus=gpus or _MODEL_CPUS, gpus=gpus).bind()
    if "analyze" in load:
        gpus = _count(settings.describe.engines) if chosen.gpus else 0
        encoder = _deploy(Encoder, settings, target=slots, cpus=gpus or _MODEL_CPUS, gpus=gpus).bind()
        streams = serve.deployment(
            num_replicas=1, ray_actor_options={"num_cpus": 0}, max_ongoing_requests=_READS_OF_STREAMS
        )(Streams).bind()
    decoder = _deploy(Decoder, settings, target=processes * _REQUESTS_PER_PROCESS, cpus=processes).bind(
        engine, encoder, streams
    )
    ingress = _deploy(
        serve.ingress()(Ingress), settings, target=slots / 2, max_ongoing=slots * _REFUSED_PER_SLOT, cpus=_INGRESS_CPUS
    )
    return ingress.bind(decoder)


def _checked(settings: Settings) -> Settings:
    """Check that several machines can share the settings."""
    if settings.serve.token is None and not settings.serve.without_token:
        raise ConfigurationError(
            "Ray Serve's address is not set here, so others may reach it: set serve.token, or serve.without_token if a "
            "proxy in front of the service asks for logins."
        )
    if settings.store.uri is None or settings.database.url is None:
        raise ConfigurationError(
            "The machines of a cluster share a store and a database: set store.uri and database.url."
        )
    if {*settings.serve.load} <= {"live"}:
        raise ConfigurationError("Live sessions need a single machine: set serve.load to classify, analyze or both.")
    return settings


def _count(engines: int | str) -> int:
    """Return the number of engines of a replica: one for `auto`."""
    return engines if isinstance(engines, int) else 1


def _deploy(
    deployed: type[Any],
    settings: Settings,
    *,
    target: float,
    max_ongoing: int | None = None,
    cpus: float,
    gpus: int = 0,
) -> serve.Deployment:
    """Return a deployment that scales with its requests in progress, unless a `serve deploy` file overrides it.

    Args:
        deployed: Its class.
        settings: The time limit of its shutdown.
        target: Target requests in progress per replica.
        max_ongoing: Maximum requests in progress per replica, and queued per caller; None is twice the target.
        cpus: CPUs per replica.
        gpus: GPUs per replica.
    """
    max_ongoing = max_ongoing or round(2 * target)
    return serve.deployment(
        ray_actor_options={"num_cpus": cpus, "num_gpus": gpus},
        autoscaling_config=AutoscalingConfig(
            min_replicas=1, max_replicas=_MAX_REPLICAS, target_ongoing_requests=target
        ),
        max_ongoing_requests=max_ongoing,
        max_queued_requests=max_ongoing,
        backpressure_config=BackpressureConfig(status_code=429, retry_after_s=_RETRY_AFTER_S),
        graceful_shutdown_timeout_s=settings.serve.stop_timeout_s,
    )(deployed)


class Ingress:
    """The deployment that receives requests."""

    def __init__(self, decoder: Any) -> None:  # noqa: ANN401 - a handle
        self._stack = ExitStack()
        settings = load_settings()
        # Ray Serve chooses its address, perhaps a public one: only the token authenticates clients.
        listening = settings.serve.model_copy(update={"host": "0.0.0.0"})  # noqa: S104
        start_telemetry(settings.metrics, page=True)
        self._service = self._stack.enter_context(open_service(settings.model_copy(update={"serve": listening})))
        self._decoder = decoder

    def __serve_build_asgi_app__(self) -> FastAPI:
        handle, load = self._decoder, self._service.settings.serve.load
        routers = []
        if "analyze" in load:
            routers.append(analyze_router(partial(_forward, handle.analyze)))
        if "classify" in load:
            routers.append(classify_router(partial(_forward, handle.classify)))
        return make_app(self._service, routers)

    def __del__(self) -> None:
        self._stack.close()


def _forward(method: Any, request: BaseModel, upload: str | None) -> Any:  # noqa: ANN401
    """Send a request to the decoder; the measured time includes the round trip."""
    began_s = time.perf_counter()
    video = Path(upload).read_bytes() if upload else None
    answer = call(method, request, video)
    total_ms = (time.perf_counter() - began_s) * 1e3
    stage_ms = {name: ms for name, ms in answer.stage_ms.items() if name != "other"}
    return answer.model_copy(update={"stage_ms": with_unattributed(stage_ms, total_ms), "total_ms": total_ms})


class Decoder:
    """The deployment that decodes videos in the sandbox, and caches frames and embeddings."""

    async def __init__(self, engine: Any, encoder: Any, streams: Any) -> None:  # type: ignore[misc]  # noqa: ANN401 - Ray's
        """Open what `serve.load` needs, by the handles of other deployments; None without questions or descriptions."""
        # The event loop must not wait for other deployments.
        await asyncio.to_thread(self._open, engine, encoder, streams)

    def _open(self, engine: Any, encoder: Any, streams: Any) -> None:  # noqa: ANN401
        with ExitStack() as stack:
            folder = stack.enter_context(temporary_folder("upload"))
            settings = with_uploads(load_settings(), folder)
            start_telemetry(settings.metrics)
            self._uploads = Uploads(folder, max_bytes=settings.serve.max_upload_mib * _MIB)
            pool = stack.enter_context(decode_pool(settings, processes=settings.extract.processes or 1, ahead=True))
            if encoder:
                self._analyzer = stack.enter_context(
                    Analyzer(settings, pool=pool, encoder=RemoteEncoder(encoder), streams=RemoteStreams(streams))
                )
                self._analyzer.wait_ready()
            if engine:
                database = stack.enter_context(connected(settings.database))
                self._classifier = stack.enter_context(
                    Classifier(settings, pool=pool, database=database, engine=RemoteEngine(engine))
                )
                self._classifier.wait_ready()
            self._stack = stack.pop_all()

    def classify(self, request: ClassifyRequest, video: bytes | None) -> object:
        with self._stored(video) as upload:
            return result_or_error(partial(classify.answer, self._classifier, request, upload))

    def analyze(self, request: AnalyzeRequest, video: bytes | None) -> object:
        with self._stored(video) as upload:
            return result_or_error(partial(analyze.answer, self._analyzer, request, upload))

    @contextmanager
    def _stored(self, video: bytes | None) -> Iterator[str | None]:
        """Yield the path of an uploaded video on this machine."""
        if video is None:
            yield None
            return
        with self._uploads.keep(BytesIO(video)) as path:
            yield path

    def __del__(self) -> None:
        if hasattr(self, "_stack"):
            self._stack.close()


class _Model:
    """A deployment that holds a model; Ray Serve replaces a replica whose model cannot be reloaded."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._fault: ModelError | None = None

    def check_health(self) -> None:
        if self._fault:
            raise self._fault

    def _outcome(self, work: Callable[[], object]) -> object:
        outcome = result_or_error(work)
        if isinstance(outcome, ModelError):
            self._fault = outcome
        return outcome

    def __del__(self) -> None:
        self._stack.close()


class Engine(_Model):
    """The deployment that answers questions, by the backend of `model.backend`; its methods are those of a backend."""

    def __init__(self) -> None:
        super().__init__()
        settings = load_settings()
        backend = backend_of(settings)
        model_info = backend.model_info(None, settings)
        spec = make_spec(model_info, settings)
        opened = backend.open(model_info, engine_settings(settings, spec))
        self._backend = self._stack.enter_context(opened)
        self._info = self._backend.wait_ready()

    def info(self) -> EngineInfo:
        return self._info

    def answer(self, batch: Batch) -> object:
        return self._outcome(partial(self._backend.answer, batch))


class Encoder(_Model):
    """The deployment that embeds frames and texts; its methods are those of an encoder."""

    def __init__(self) -> None:
        super().__init__()
        settings = load_settings()
        self._encoder = self._stack.enter_context(closing(open_encoder(settings, read_encoder_info(settings))))
        self._encoder.start()
        self._info = self._encoder.info()

    def info(self) -> EncoderInfo:
        return self._info

    def embed_images(self, videos: Sequence[npt.NDArray[np.uint8]]) -> object:
        return self._outcome(partial(self._encoder.embed_images, videos))

    def embed_texts(self, texts: Sequence[str]) -> object:
        return self._outcome(partial(self._encoder.embed_texts, texts))


class _RemoteModel(Lifetime):
    """The replicas of a model's deployment, which Ray Serve starts and stops."""

    def __init__(self, handle: Any) -> None:  # noqa: ANN401 - Ray's
        self._handle = handle

    def start(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class RemoteEngine(_RemoteModel, InferenceBackend):
    """`Engine` as an `InferenceBackend`; its methods raise what `call` raises."""

    engines = 1
    times = EngineTimes()

    def wait_ready(self) -> EngineInfo:
        info: EngineInfo = call(self._handle.info)
        return info

    def answer(self, batch: Batch) -> list[Reply]:
        replies: list[Reply] = call(self._handle.answer, batch)
        return replies


class RemoteEncoder(_RemoteModel):
    """`Encoder` as a `tasks.embedding.encoder.Encoder`; its methods raise what `call` raises."""

    processes = 1
    loaded: EncoderInfo | None = None

    def info(self) -> EncoderInfo:
        self.loaded = info = call(self._handle.info)
        self.processes = max(1, info.gpus)
        return self.loaded

    def embed_images(self, videos: Sequence[npt.NDArray[np.uint8]]) -> npt.NDArray[np.float32]:
        vectors: npt.NDArray[np.float32] = call(self._handle.embed_images, videos)
        return vectors

    def embed_texts(self, texts: Sequence[str]) -> EmbeddedTexts:
        texts_as_vectors: EmbeddedTexts = call(self._handle.embed_texts, texts)
        return texts_as_vectors


class RemoteStreams(Streams):
    """The `Streams` of their deployment; its methods raise what `call` raises."""

    def __init__(self, handle: Any) -> None:  # noqa: ANN401 - Ray's
        self._handle = handle

    def read(self, stream_id: str) -> StreamState:
        state: StreamState = call(self._handle.read, stream_id)
        return state

    def advance(self, stream_id: str, state: StreamState) -> bool:
        advanced: bool = call(self._handle.advance, stream_id, state)
        return advanced


def result_or_error(work: Callable[[], Result]) -> Result | ReelabelError:
    """Return an expected error instead of raising it: Ray would wrap it and log its traceback."""
    try:
        return work()
    except ReelabelError as error:
        return error


def call(method: Any, *arguments: object) -> Any:  # noqa: ANN401 - Ray's
    """Call a method of a handle, and wait for its `result_or_error`; must run in a thread.

    If a replica is lost, another one is called, once.

    Raises:
        RequestError: All replicas are busy, or two were lost.
        AbandonedError: The caller no longer waits.
        ReelabelError: As returned by the method.
    """
    try:
        try:
            outcome = _wait(method.remote(*arguments))
        except RayActorError:
            outcome = _wait(method.remote(*arguments))
    except BackPressureError:
        raise RequestError(
            "All replicas are busy; see Retry-After.",
            code="busy",
            status=HTTPStatus.TOO_MANY_REQUESTS,
            retry_after_s=_RETRY_AFTER_S,
        ) from None
    except (RayActorError, DeploymentUnavailableError):
        raise RequestError(
            "The replicas that worked on this request were lost; see Retry-After.",
            code="replica_lost",
            status=HTTPStatus.SERVICE_UNAVAILABLE,
            retry_after_s=_RETRY_AFTER_S,
        ) from None
    if isinstance(outcome, ReelabelError):
        raise outcome
    return outcome


def _wait(response: Any) -> Any:  # noqa: ANN401
    try:
        while True:
            try:
                return response.result(timeout_s=_POLL_S)
            except TimeoutError as error:
                if isinstance(error, RayTaskError):  # the method's own
                    raise
                raise_if_abandoned()
    except AbandonedError:
        response.cancel()
        raise
