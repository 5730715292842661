"""`POST /v1/analyze`: what one video shows."""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Literal, Self, TypeAlias

from pydantic import Field

from flows.run.describing import open_describer, resolve_description
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
from infra.settings import DescribeOptions
from reelabel.errors import VideoError
from tasks.embedding.bank_file import BankFiles
from tasks.embedding.encoder import open_encoder

if TYPE_CHECKING:
    from fastapi import APIRouter

    from flows.serve.requests.handle import Work
    from infra.settings import Settings
    from reelabel.pool.decode_pool import DecodePool
    from reelabel_engine.protocol import EncoderInfo
    from tasks.description.described import DescribedVideo
    from tasks.description.describer import VideoDescriber
    from tasks.description.pooling import ChunkDescription, EmbeddedBank, ScoredText
    from tasks.domain import DescribeSpec, Job
    from tasks.embedding.encoder import Encoder

_MS = 1000
_DESCRIBERS = 64


class AnalyzeRequest(VideoRequest):
    """A video, and what is to be said of it."""

    tags: Annotated[bool, Field(description="Return the texts of the bank of tags that fit best.")] = True
    caption: Annotated[bool, Field(description="Return the text of the bank of captions that fits best.")] = True
    scenes: Annotated[bool, Field(description="Return where scenes change.")] = True
    num_frames: Annotated[
        int | None, Field(ge=1, le=512, description="Frames of a chunk; defaults to describe.frames_per_chunk.")
    ] = None
    chunk_s: Annotated[
        float | None, Field(ge=1, le=3600, description="Seconds of a chunk; defaults to describe.chunk_s.")
    ] = None


Seconds: TypeAlias = Annotated[float, Field(description="Seconds since the video's first frame.")]


class Fitting(ResponseModel):
    """A text that fits."""

    text: Annotated[str, Field(description="The text, as in the bank.")]
    score: Annotated[float, Field(description="Cosine with the frames, averaged.")]
    probability: Annotated[float | None, Field(description="From the model's sigmoid, if it has one.")]


class AnalyzedChunk(ResponseModel):
    """What a chunk shows."""

    chunk: Annotated[int, Field(description="Number of the chunk, from 0.")]
    start_s: Seconds
    end_s: Seconds
    frames_used: FramesUsed
    tags: Annotated[list[Fitting] | None, Field(description="Texts that fit best, the best first.")] = None
    caption: Annotated[Fitting | None, Field(description="The caption that fits best.")] = None
    changes: Annotated[list[float] | None, Field(description="Seconds at which scenes change.")] = None


class Scene(ResponseModel):
    """A scene."""

    start_s: Seconds
    end_s: Seconds
    shots: Annotated[int, Field(description="Consecutive shots that show the same.")]
    begins: Annotated[
        Literal["cut", "gradual", "sampled"] | None,
        Field(description="Its first change: a cut, exact to the frame; gradual, or sampled, to half a second."),
    ] = None


class AnalyzeAnswer(ResponseModel):
    """What a video shows; its fields are columns of `reelabel.description`."""

    duration_s: Annotated[float, Field(description="Length of the video, or of its segment, in seconds.")]
    tags: Annotated[list[Fitting] | None, Field(description="Texts that fit best, the best first.")] = None
    caption: Annotated[Fitting | None, Field(description="The caption that fits best.")] = None
    scenes: Annotated[list[Scene] | None, Field(description="Scenes in the order of time.")] = None
    scene_changes: Annotated[int | None, Field(description="How often the scene changes.")] = None
    scene_method: Annotated[str | None, Field(description="How changes were found.")] = None
    scene_note: Annotated[str | None, Field(description="What limits the scenes; empty if nothing does.")] = None
    chunks: Annotated[list[AnalyzedChunk], Field(description="The video's chunks, at least one.")]
    frames_used: FramesUsed
    model: Annotated[str, Field(description="The image-text model.")]
    source_fingerprint: SourceFingerprint
    was_cached: Annotated[bool, Field(description="Whether the frames had been embedded before.")]
    decode_method: DecodeMethod
    decode_note: DecodeNote
    stage_ms: Annotated[
        dict[str, float], Field(description="Milliseconds by stage; `other` is the rest, such as waiting for turns.")
    ]
    total_ms: Annotated[float, Field(description="Milliseconds from the whole request to its answer.")]


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


def analyze_router(work: Work[AnalyzeRequest, AnalyzeAnswer]) -> APIRouter:
    """Return the route of descriptions, worked out as said."""
    return request_router(
        "analyze",
        AnalyzeRequest,
        AnalyzeAnswer,
        work,
        summary="Say what a video shows: tags, caption, scenes",
        description="Describe a video as `reelabel describe` does: the same frames, embeddings and banks, hence the "
        "same row.",
    )


def answer(analyzer: Analyzer, asked: AnalyzeRequest, upload: str | None) -> AnalyzeAnswer:
    """Describe a video.

    Args:
        analyzer: Describes it.
        asked: The video, and what is to be said of it.
        upload: Path of the uploaded video, if there is one.

    Raises:
        RequestRefusedError: The video is at fault.
        TransientError: The store or the encoder is unavailable.
    """
    started = time.perf_counter()
    job = job_from(asked.model_dump(include=set(VideoRequest.model_fields)), upload=upload, questions=False)
    try:
        found = analyzer.describe(job, chunk_s=asked.chunk_s, num_frames=asked.num_frames)
    except VideoError as error:
        raise refuse_job(error.code, error.message, upload) from None
    total_ms = (time.perf_counter() - started) * 1e3
    return _to_answer(found, asked, model=analyzer.spec.model.name, total_ms=total_ms)


def _to_answer(found: DescribedVideo, asked: AnalyzeRequest, *, model: str, total_ms: float) -> AnalyzeAnswer:
    described, cost = found.description, found.cost
    steps = ("fetch", "decode", "cache_write", "cache_read", "embed", "scenes", "describe")
    of_scenes = {
        "scenes": [
            Scene(start_s=each.start_ms / _MS, end_s=each.end_ms / _MS, shots=each.shots, begins=each.begins)
            for each in found.scenes
        ],
        "scene_changes": len(found.changes.changes),
        "scene_method": found.changes.method,
        "scene_note": found.changes.note,
    }
    return AnalyzeAnswer(
        duration_s=found.duration_s,
        tags=_fitting(described.tags) if asked.tags else None,
        caption=_caption(described.caption) if asked.caption else None,
        **(of_scenes if asked.scenes else {}),
        chunks=[_to_chunk(each, found, asked) for each in described.chunks],
        frames_used=found.frames,
        model=model,
        source_fingerprint=found.fingerprint,
        was_cached=found.was_cached,
        decode_method=found.decode_method,
        decode_note=found.decode_note,
        stage_ms=with_unattributed({step.replace("_", " "): getattr(cost, f"{step}_ms") for step in steps}, total_ms),
        total_ms=total_ms,
    )


def _to_chunk(each: ChunkDescription, found: DescribedVideo, asked: AnalyzeRequest) -> AnalyzedChunk:
    return AnalyzedChunk(
        chunk=each.chunk.index,
        start_s=each.chunk.start_s,
        end_s=each.chunk.end_s,
        frames_used=each.frames,
        tags=_fitting(each.tags) if asked.tags else None,
        caption=_caption(each.caption) if asked.caption else None,
        changes=[change.pts_ms / _MS for change in found.changes_in(each.chunk)] if asked.scenes else None,
    )


def _fitting(texts: tuple[ScoredText, ...]) -> list[Fitting]:
    return [Fitting(text=each.text, score=each.score, probability=each.probability) for each in texts]


def _caption(caption: ScoredText | None) -> Fitting | None:
    return _fitting((caption,))[0] if caption else None
