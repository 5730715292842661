"""`POST /v1/classify`: answers one question about one video, with choices or in words."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeAlias

from pydantic import Field

from flows.run.request import QuestionOptions
from flows.run.spec import engine_settings, make_spec
from flows.serve.errors import invalid
from flows.serve.requests.handle import (
    DecodeMethod,
    DecodeNote,
    FramesUsed,
    ResponseModel,
    SourceFingerprint,
    request_router,
    with_unattributed,
)
from flows.serve.requests.jobs import VideoRequest, job_from, refuse_job
from flows.shard.answer import answer_shard
from flows.shard.context import AnswerContext
from flows.shard.infer import MAX_CONCURRENT_GROUPS
from infra.settings import ChunkOptions, MaxTokens, PromptOptions, SamplingOptions
from infra.text_bounds import MAX_CHOICE, MAX_CHOICES, MAX_ID, MAX_SCHEMA, MAX_TEXT
from reelabel.coverage import CoverageThresholds
from reelabel.errors import ConfigurationError
from tasks.domain import JobResult, Shard, WallClockProfile
from tasks.domain.chunks import choice_of
from tasks.frame_cache.pool import KEPT_BYTES, open_extractor
from tasks.model.backend import backend_of, require_words
from tasks.results.evaluation.routes import escalation_margin

if TYPE_CHECKING:
    from fastapi import APIRouter
    from sqlalchemy import Engine

    from flows.serve.requests.handle import Work
    from infra.settings import Settings
    from reelabel.pool.decode_pool import DecodePool
    from reelabel_engine.protocol import EngineInfo
    from tasks.domain import Job, RunSpec
    from tasks.domain.chunks import ChunkOutcome
    from tasks.live.model import LiveModel
    from tasks.model.backend import InferenceBackend
    from tasks.results.write import ShardResults


# Maximum cached specs, one per combination of request options.
_SPECS = 256
_Choice: TypeAlias = Annotated[str, Field(json_schema_extra={"minLength": 1, "maxLength": MAX_CHOICE})]
_Choices: TypeAlias = Annotated[
    list[_Choice], Field(json_schema_extra={"minItems": 2, "maxItems": MAX_CHOICES, "uniqueItems": True})
]


class ClassifyRequest(SamplingOptions, PromptOptions, ChunkOptions, VideoRequest):
    """A job, like a row of a manifest, and options of runs, which default to the settings."""

    # The rules of manifests apply, with their messages; the schema repeats them for generated clients.
    prompt: str = Field(
        description="The question, without its choices.", json_schema_extra={"minLength": 1, "maxLength": MAX_TEXT}
    )
    choices: _Choices | None = Field(
        None, description="At least two distinct choices; without choices, the answer is in words."
    )
    json_schema: dict[str, Any] | None = Field(
        None,
        alias="schema",
        description=f"JSON schema of an answer without choices, of at most {MAX_SCHEMA:,} characters; without one, "
        f"the answer is free text.",
    )
    max_tokens: MaxTokens = None
    task: str | None = Field(
        None, description="Task of the job, for the sampler auto.", json_schema_extra={"maxLength": MAX_ID}
    )

    def job_values(self) -> dict[str, object]:
        """Return the values of the job, by column of a manifest."""
        schema = None if self.json_schema is None else json.dumps(self.json_schema, ensure_ascii=False)
        return {name: getattr(self, name) for name in _JOB_FIELDS} | {"schema": schema}

    def overrides(self) -> QuestionOptions:
        """Return the options of the request, without those that belong to its job."""

        def options_of(model: type[SamplingOptions | PromptOptions | ChunkOptions]) -> dict[str, object]:
            names = model.model_fields.keys() - _JOB_FIELDS
            return {name: value for name in names if (value := getattr(self, name)) is not None}

        return QuestionOptions(
            max_tokens=self.max_tokens,
            sampling=SamplingOptions.model_validate(options_of(SamplingOptions)),
            prompts=PromptOptions.model_validate(options_of(PromptOptions)),
            chunks=ChunkOptions.model_validate(options_of(ChunkOptions)),
        )


# The last three are options of runs and columns of a manifest: here they are the job's, which take precedence.
_JOB_FIELDS = frozenset(
    {*VideoRequest.model_fields, "prompt", "choices", "task", "template", "system_prompt", "examples"}
)


class AnsweredChunk(ResponseModel):
    """The answer about one chunk, or the reason why there is none."""

    chunk: int = Field(description="Number of the chunk, from 0.")
    start_s: float | None = Field(description="Start in the video, in seconds; null for the start of the video.")
    end_s: float | None = Field(description="End in the video, in seconds; null for the end of the video.")
    label: str | None = Field(None, description="The most probable choice; null if the chunk failed.")
    probabilities: list[float] | None = Field(None, description="Probability of each choice, in their order.")
    margin: float | None = Field(None, description="Difference between the two highest probabilities.")
    code: str | None = Field(None, description="Code of the failure, as for jobs; null if the chunk has a label.")
    message: str | None = Field(None, description="Message of the failure.")


class ClassifyAnswer(ResponseModel):
    """The answer to one job; its fields are columns of `reelabel.result`."""

    label: str | None = Field(description="The most probable choice; null without choices.")
    choice_index: int | None = Field(description="Index of the label among the choices, from 0; null without choices.")
    probabilities: list[float] | None = Field(
        description="Probability of each choice, in their order; null without choices."
    )
    margin: float | None = Field(description="Difference between the two highest probabilities; null without choices.")
    entropy_nats: float | None = Field(
        description="Entropy of the probabilities, at most ln(number of choices); null without choices."
    )
    text: str | None = Field(description="The answer in words; null with choices, or with a schema.")
    data: Any = Field(description="The answer as JSON; null without a schema.")
    finish_reason: Literal["stop", "length"] | None = Field(
        description="Why the answer in words ended: stop, or length at max_tokens; null with choices."
    )
    output_tokens: int | None = Field(description="Tokens of the answer in words; null with choices.")
    model: str = Field(description="The model that answered.")
    spec_id: str = Field(description="Id of the spec, the same as for runs with the same options.")
    sampler: str = Field(description="The sampler that selected the frames.")
    routed_by: str = Field(description="Why a dense sampler was used: task, coverage or margin; otherwise empty.")
    frames_used: FramesUsed
    decode_method: DecodeMethod
    decode_note: DecodeNote
    source_fingerprint: SourceFingerprint
    prompt_tokens: int = Field(description="Tokens of the prompt, including the video.")
    cached_tokens: int = Field(description="Prompt tokens served from the prefix cache.")
    chunks: list[AnsweredChunk] = Field(description="Empty unless chunk_s is given.")
    stage_ms: dict[str, float] = Field(
        description="Milliseconds by stage (those of chunks overlap); `other` is the rest, such as waiting."
    )
    total_ms: float = Field(description="Milliseconds from the whole request to its answer.")


class Classifier:
    """Answers single questions; a context manager. Thread-safe.

    Attributes:
        live: Answers live sessions with the same engine; None without live sessions, and before it is entered.
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
        """Read the model's facts; nothing is loaded yet. Without a remote `engine`, one is loaded on entering.

        Raises:
            ModelError: The model cannot be used.
            ConfigurationError: The settings conflict.
        """
        self._settings = settings
        self._database = database
        self._backend = backend_of(settings)
        self.model_info = self._backend.model_info(None, settings)
        self.spec = make_spec(self.model_info, settings)
        # By the next request, a failed video may have been replaced.
        self._extractor = open_extractor(settings, pool, self.spec.sampling, keep_bytes=KEPT_BYTES, keep_faults=0)
        self._engine = engine
        self.live: LiveModel | None = None
        self._live_sessions = live_sessions
        self._find_context = lru_cache(_SPECS)(self._make_context)
        self._stack = ExitStack()
        self._workers = ThreadPoolExecutor(max(4, settings.serve.max_requests), thread_name_prefix="prepare")

    def __enter__(self) -> Self:
        self._stack.callback(self._workers.shutdown, wait=False, cancel_futures=True)
        if self._engine is None:
            opened, self.live = self._open(engine_settings(self._settings, self.spec))
            self._engine = self._stack.enter_context(opened)
        return self

    def _open(self, settings: Settings) -> tuple[InferenceBackend, LiveModel | None]:
        if self._live_sessions:
            return self._backend.open_live(self.model_info, settings, sessions=self._live_sessions)
        return self._backend.open(self.model_info, settings), None

    def __exit__(self, *_raised: object) -> None:
        self._stack.close()

    def wait_ready(self) -> EngineInfo:
        """Wait until questions can be answered.

        Raises:
            ModelError: The model cannot be loaded.
            ConfigurationError: The server cannot be reached.
        """
        assert self._engine
        return self._engine.wait_ready()

    def spec_of(self, overrides: QuestionOptions) -> RunSpec:
        """Return the spec of a request. Raises `RequestError` if its options conflict."""
        return self._context(overrides).spec

    def answer(self, job: Job, overrides: QuestionOptions) -> tuple[ShardResults, dict[str, float]]:
        """Answer a job; also return the milliseconds of each stage.

        Raises:
            RequestError: The options conflict.
            TransientError: The store or the engine is unavailable.
        """
        context = self._context(overrides)
        below = self._margin(context.spec)
        if not job.choices:
            self._require_words(context.spec)
        context = replace(context, profile=WallClockProfile(), escalate_below=below)
        return answer_shard(_shard_of(job, context.spec), context, workers=self._workers)

    def _margin(self, spec: RunSpec) -> float | None:
        try:
            return escalation_margin(self._database, spec)  # each time, as another one may have been fitted
        except ConfigurationError as error:
            raise invalid(error.message) from None

    def _require_words(self, spec: RunSpec) -> None:
        if spec.chunk_s is not None:
            raise invalid(
                "With chunk_s, a question needs choices, because words cannot be aggregated over chunks; add choices, "
                "or leave out chunk_s."
            )
        try:
            require_words(self._backend, words=1)
        except ConfigurationError as error:
            raise invalid(error.message) from None

    def _context(self, overrides: QuestionOptions) -> AnswerContext:
        try:
            return self._find_context(overrides)
        except ConfigurationError as error:
            raise invalid(error.message) from None

    def _make_context(self, overrides: QuestionOptions) -> AnswerContext:
        spec = make_spec(self.model_info, self._settings, overrides)
        if spec.relevance:
            raise ConfigurationError(
                f"The sampler {spec.sampling.sampler} works only in runs: this service loads no image-text model "
                "next to the engine; use another sampler."
            )
        thresholds = CoverageThresholds.of(spec.sampling)
        assert self._engine
        return AnswerContext(
            spec=spec,
            backend=self._engine,
            batch_bytes=KEPT_BYTES // MAX_CONCURRENT_GROUPS,
            extractor=replace(self._extractor, sampling=spec.sampling, thresholds=thresholds),
        )


def _shard_of(job: Job, spec: RunSpec) -> Shard:
    if spec.chunk_rule:
        choice = choice_of(spec.chunk_rule)
        if choice is not None and choice not in job.choices:
            raise invalid(f"chunk_rule: {spec.chunk_rule} names none of the choices.")
        job = replace(job, chunk_s=spec.chunk_s)
    return Shard(index=0, jobs=(job,))


def classify_router(work: Work[ClassifyRequest, ClassifyAnswer]) -> APIRouter:
    return request_router(
        "classify",
        ClassifyRequest,
        ClassifyAnswer,
        work,
        summary="Answer a question about a video",
        description="Answer a job as a run does: the same frames, prompt and engine, hence the same label and "
        "probabilities. Without choices, the answer is in words or, with a schema, in JSON.",
    )


def answer(classifier: Classifier, request: ClassifyRequest, upload: str | None) -> ClassifyAnswer:
    """Answer a question about its video or an uploaded one.

    Raises:
        RequestError: The job fails, or its options conflict.
        TransientError: The store or the engine is unavailable.
    """
    started, overrides = time.perf_counter(), request.overrides()
    job = job_from(request.job_values(), upload=upload)
    ended, stage_ms = classifier.answer(job, overrides)
    if ended.failures:
        [failure] = ended.failures
        raise refuse_job(failure.code, failure.message, upload)
    [result] = ended.results
    answer, seen, spec = result.answer, result.provenance, classifier.spec_of(overrides)
    words = answer.words
    total_ms = (time.perf_counter() - started) * 1e3
    return ClassifyAnswer(
        label=result.label,
        choice_index=answer.choice_index,
        probabilities=list(answer.probabilities) or None,
        margin=answer.margin,
        entropy_nats=answer.entropy_nats,
        text=words and words.text,
        data=json.loads(words.data) if words and words.data is not None else None,
        finish_reason=words and words.finish_reason,
        output_tokens=words and words.output_tokens,
        model=spec.model.name,
        spec_id=spec.spec_id,
        sampler=seen.sampler,
        routed_by=result.routed_by,
        frames_used=seen.frames_used,
        decode_method=seen.decode_method,
        decode_note=seen.decode_note,
        source_fingerprint=seen.fingerprint,
        prompt_tokens=answer.prompt_tokens,
        cached_tokens=answer.cached_tokens,
        chunks=[_to_chunk(chunk) for chunk in sorted(ended.chunks, key=attrgetter("number"))],
        stage_ms=with_unattributed(stage_ms, total_ms),
        total_ms=total_ms,
    )


def _to_chunk(chunk: ChunkOutcome) -> AnsweredChunk:
    outcome = chunk.outcome
    place = {"chunk": chunk.number, "start_s": outcome.job.start_s, "end_s": outcome.job.end_s}
    if isinstance(outcome, JobResult):
        answer = outcome.answer
        found = {"label": outcome.label, "probabilities": list(answer.probabilities), "margin": answer.margin}
        return AnsweredChunk.model_validate(place | found)
    return AnsweredChunk.model_validate(place | {"code": outcome.code, "message": outcome.message})
