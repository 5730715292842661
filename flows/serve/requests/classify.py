"""`POST /v1/classify`: one multiple-choice question about one video."""

from __future__ import annotations

import time
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from flows.run.parameters import SpecOverrides
from flows.serve.requests.jobs import VideoRequest, job_from, refuse_job
from flows.serve.requests.route import (
    Answered,
    DecodeMethod,
    DecodeNote,
    FramesUsed,
    SourceFingerprint,
    request_router,
    with_rest,
)
from infra.settings import PromptOptions
from infra.settings.chunks import ChunkOptions
from infra.settings.sampling import SamplingOptions
from infra.text_bounds import MAX_CHOICE, MAX_CHOICES, MAX_ID, MAX_TEXT
from tasks.domain import JobResult

if TYPE_CHECKING:
    from fastapi import APIRouter

    from flows.serve.requests.classifier import Classifier
    from flows.serve.requests.place import Work
    from tasks.domain.chunks import ChunkOutcome


class ClassifyRequest(SamplingOptions, PromptOptions, ChunkOptions, VideoRequest):
    """A job, as a row of a manifest, and options of runs; those left empty are as in the settings."""

    # The rules are those of manifests, with their sentences; generated clients are told of them.
    prompt: Annotated[
        str,
        Field(
            description="The question, without its choices.", json_schema_extra={"minLength": 1, "maxLength": MAX_TEXT}
        ),
    ]
    choices: Annotated[
        list[Annotated[str, Field(json_schema_extra={"minLength": 1, "maxLength": MAX_CHOICE})]],
        Field(
            description="At least two different answers.",
            json_schema_extra={"minItems": 2, "maxItems": MAX_CHOICES, "uniqueItems": True},
        ),
    ]
    task: Annotated[
        str | None,
        Field(description="Task, by which the sampler auto may choose.", json_schema_extra={"maxLength": MAX_ID}),
    ] = None

    def job_values(self) -> dict[str, object]:
        """Return the values of the job, by column of a manifest."""
        return {name: getattr(self, name) for name in _JOB_FIELDS}

    def overrides(self) -> SpecOverrides:
        """Return the options that are not the job's."""

        def given(model: type[SamplingOptions | PromptOptions | ChunkOptions]) -> dict[str, object]:
            names = model.model_fields.keys() - _JOB_FIELDS
            return {name: value for name in names if (value := getattr(self, name)) is not None}

        return SpecOverrides(
            sampling=SamplingOptions.model_validate(given(SamplingOptions)),
            prompts=PromptOptions.model_validate(given(PromptOptions)),
            chunks=ChunkOptions.model_validate(given(ChunkOptions)),
        )


# The last three are options of runs and columns of a manifest: here they are the job's, which takes precedence.
_JOB_FIELDS = frozenset(
    {*VideoRequest.model_fields, "prompt", "choices", "task", "template", "system_prompt", "examples"}
)


class AnsweredChunk(Answered):
    """The answer about one chunk, or why there is none."""

    chunk: Annotated[int, Field(description="Number of the chunk, from 0.")]
    start_s: Annotated[float | None, Field(description="Its start in the video, in seconds; null is the video's.")]
    end_s: Annotated[float | None, Field(description="Its end in the video, in seconds; null is the video's.")]
    label: Annotated[str | None, Field(description="The most probable choice; null if it failed.")] = None
    probabilities: Annotated[list[float] | None, Field(description="One per choice, in their order.")] = None
    margin: Annotated[float | None, Field(description="Difference of the two highest probabilities.")] = None
    code: Annotated[str | None, Field(description="Why it has no label, as of a failed job; null if it has.")] = None
    message: Annotated[str | None, Field(description="The same in a sentence.")] = None


class ClassifyAnswer(Answered):
    """The answer to one job; its fields are columns of `reelabel.result`."""

    label: Annotated[str, Field(description="The most probable choice.")]
    choice_index: Annotated[int, Field(description="Its place among the choices, from 0.")]
    probabilities: Annotated[list[float], Field(description="One per choice, in their order.")]
    margin: Annotated[float, Field(description="Difference of the two highest probabilities.")]
    entropy_nats: Annotated[float, Field(description="Entropy of the probabilities, at most ln(number of choices).")]
    model: Annotated[str, Field(description="The model that answered.")]
    spec_id: Annotated[str, Field(description="Id of the spec, the same as for runs with the same options.")]
    sampler: Annotated[str, Field(description="The sampler that chose the frames.")]
    routed_by: Annotated[
        str, Field(description="Why a dense sampler was used: task, coverage or margin; empty if none of them.")
    ]
    frames_used: FramesUsed
    decode_method: DecodeMethod
    decode_note: DecodeNote
    source_fingerprint: SourceFingerprint
    prompt_tokens: Annotated[int, Field(description="Tokens of the prompt, including the video.")]
    cached_tokens: Annotated[int, Field(description="Those of them that the prefix cache had.")]
    chunks: Annotated[list[AnsweredChunk], Field(description="Empty unless chunk_s is given.")]
    stage_ms: Annotated[
        dict[str, float],
        Field(description="Milliseconds by stage (those of chunks overlap); `other` is the rest, such as waiting."),
    ]
    total_ms: Annotated[float, Field(description="Milliseconds from the whole request to its answer.")]


def classify_router(work: Work[ClassifyRequest, ClassifyAnswer]) -> APIRouter:
    """Return the route of questions, worked out as said."""
    return request_router(
        "classify",
        ClassifyRequest,
        ClassifyAnswer,
        work,
        summary="Answer a multiple-choice question about a video",
        description="Answer a job as a run does: the same frames, prompt and engine, hence the same label and "
        "probabilities.",
    )


def answer(classifier: Classifier, asked: ClassifyRequest, upload: str | None) -> ClassifyAnswer:
    """Answer a question.

    Args:
        classifier: Answers it.
        asked: The question.
        upload: Path of the uploaded video, if there is one.

    Raises:
        RequestRefusedError: The job fails, or its options conflict.
        TransientError: The store or the engine is unavailable.
    """
    started, overrides = time.perf_counter(), asked.overrides()
    job = job_from(asked.job_values(), upload=upload)
    ended, stage_ms = classifier.answer(job, overrides)
    if ended.failures:
        [failure] = ended.failures
        raise refuse_job(failure.code, failure.message, upload)
    [result] = ended.results
    answer, seen, spec = result.answer, result.provenance, classifier.spec_of(overrides)
    total_ms = (time.perf_counter() - started) * 1e3
    return ClassifyAnswer(
        label=result.label,
        choice_index=answer.choice_index,
        probabilities=list(answer.probabilities),
        margin=answer.margin,
        entropy_nats=answer.entropy_nats,
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
        stage_ms=with_rest(stage_ms, total_ms),
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
