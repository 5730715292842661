"""`POST /v1/analyze`: describes one video."""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Literal, Self, TypeAlias

from pydantic import Field

from flows.run.describing import open_describer, resolve_description, scene_method_of
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
from flows.serve.requests.streams import BEGINNING, Streams, StreamState
from infra.settings import DescribeOptions
from infra.text_bounds import Id  # noqa: TC001 - pydantic reads it
from reelabel.errors import ConfigurationError, VideoError
from tasks.description.banks import bank_of_texts
from tasks.description.described import ChunkChange  # noqa: TC001 - pydantic reads it
from tasks.description.pooling import ScoredText, TextBank
from tasks.description.scenes.detect import Scene, threshold_of
from tasks.embedding.bank_file import BankFiles
from tasks.embedding.encoder import open_encoder

if TYPE_CHECKING:
    from fastapi import APIRouter

    from flows.serve.requests.handle import Work
    from flows.serve.requests.streams import StreamPosition
    from infra.settings import Settings
    from reelabel.pool.decode_pool import DecodePool
    from reelabel_engine.protocol import EncoderInfo
    from tasks.description.described import DescribedVideo
    from tasks.description.describer import VideoDescriber
    from tasks.domain import DescribeSpec, Job
    from tasks.embedding.encoder import Encoder

_MS = 1000
_DESCRIBERS = 64
# Limit of a request's banks, which are embedded while its client waits.
_MAX_TEXTS = 1_000
BankText: TypeAlias = Annotated[str, Field(max_length=2_000)]


class AnalyzeRequest(VideoRequest):
    """A video, and the parts of its description to return."""

    tags: bool = Field(True, description="Return the best-fitting tags.")
    caption: bool = Field(True, description="Return the best-fitting caption.")
    scenes: bool = Field(True, description="Return scene changes.")
    num_frames: int | None = Field(
        None, ge=1, le=512, description="Frames per chunk; defaults to describe.frames_per_chunk."
    )
    chunk_s: float | None = Field(None, ge=1, le=3600, description="Seconds per chunk; defaults to describe.chunk_s.")
    top_k: int | None = Field(None, ge=1, le=1000, description="Tags per chunk and of the video; defaults to 5.")
    tag_bank: tuple[BankText, ...] | None = Field(
        None,
        min_length=1,
        max_length=_MAX_TEXTS,
        description="Tags to compare with; defaults to the label set describe.tags.",
    )
    caption_bank: tuple[BankText, ...] | None = Field(
        None,
        min_length=1,
        max_length=_MAX_TEXTS,
        description="Captions to compare with; defaults to the label set describe.captions.",
    )
    method: Literal["default", "published"] = Field(
        "default",
        description="How chunks are aggregated and scene changes are found: published, as in the published method.",
    )
    stream_id: Id | None = Field(
        None,
        min_length=1,
        description="Makes the video the next part of a stream: chunks and times continue, and changes are "
        "detected by a moving average of embeddings, also between two parts.",
    )


Seconds: TypeAlias = Annotated[
    float, Field(description="Seconds since the video's first frame, or since the beginning of the stream.")
]


class AnalyzedChunk(ResponseModel):
    """The description of a chunk."""

    chunk: int = Field(description="Number of the chunk, from 0.")
    start_s: Seconds
    end_s: Seconds
    frames_used: FramesUsed
    tags: list[ScoredText] | None = Field(None, description="Best-fitting tags, best first.")
    caption: ScoredText | None = Field(None, description="The best-fitting caption.")


class AnalyzeAnswer(ResponseModel):
    """The description of a video; its fields are columns of `reelabel.description`."""

    duration_s: float = Field(description="Length of the video, or of its segment, in seconds.")
    tags: list[ScoredText] | None = Field(None, description="Best-fitting tags, best first.")
    caption: ScoredText | None = Field(None, description="The best-fitting caption.")
    scenes: list[Scene] | None = Field(None, description="Scenes in order of time.")
    scene_changes: int | None = Field(None, description="Number of scene changes.")
    changes: list[ChunkChange] | None = Field(None, description="The changes in order of time.")
    scene_method: str | None = Field(None, description="Method by which changes were detected.")
    scene_note: str | None = Field(None, description="Limitations of the scenes; empty if none.")
    chunks: list[AnalyzedChunk] = Field(description="The video's chunks, at least one.")
    frames_used: FramesUsed
    model: str = Field(description="The image-text model.")
    source_fingerprint: SourceFingerprint
    was_cached: bool = Field(description="Whether the frames were already embedded.")
    decode_method: DecodeMethod
    decode_note: DecodeNote
    stream_id: str | None = Field(None, description="As in the request.")
    stage_ms: dict[str, float] = Field(description="Milliseconds by stage; `other` is the rest, such as waiting.")
    total_ms: float = Field(description="Milliseconds from the whole request to its answer.")


class Analyzer:
    """Describes single videos; a context manager. Thread-safe.

    Attributes:
        spec: That of requests without options.
    """

    def __init__(
        self, settings: Settings, *, pool: DecodePool, encoder: Encoder | None = None, streams: Streams | None = None
    ) -> None:
        """Read the model's facts and the banks; nothing is loaded yet. By default, nothing is remote.

        Raises:
            ModelError: The model cannot be used.
            ConfigurationError: A bank cannot be used.
        """
        self._settings = settings
        self._pool = pool
        model_info, self.spec, self._texts = resolve_description(DescribeOptions(), settings)
        self._encoder = encoder or open_encoder(settings, model_info)
        self._describer_of = lru_cache(_DESCRIBERS)(self._open)
        self._bank_of = lru_cache(_DESCRIBERS)(self._embed_bank)
        self._streams = streams or Streams()
        self._stack = ExitStack()
        self._info: EncoderInfo | None = None
        self._banks: tuple[TextBank, TextBank] | None = None

    def __enter__(self) -> Self:
        self._stack.enter_context(closing(self._encoder))
        self._encoder.start()
        return self

    def __exit__(self, *_raised: object) -> None:
        self._stack.close()

    def wait_ready(self) -> EncoderInfo:
        """Wait until videos can be described.

        Raises:
            ModelError: The model cannot be loaded.
            ConfigurationError: A text of a bank is too long for it.
        """
        self._info = self._encoder.info()
        files = BankFiles.of(self._settings.store, python=self._settings.model.python)
        banks, spec = self._texts, self.spec
        tags, captions = (
            files.embed(banks[digest], self._encoder, spec.model)[0] for digest in (spec.tags, spec.captions)
        )
        self._banks = tags, captions
        return self._info

    def describe(self, job: Job, request: AnalyzeRequest) -> tuple[DescribedVideo, StreamPosition]:
        """Describe a job's video; also return its position in its stream.

        Raises:
            VideoError: The video cannot be used; see its code.
            InferenceError: The encoder dies on its frames.
            TransientError: The store or the encoder is unavailable.
            RequestError: A bank of the request cannot be used.
        """
        spec, scenes = self.spec, scene_method_of(request.method)
        if request.stream_id and scenes == "auto":
            scenes = "ema"
        changed: dict[str, object] = {
            "seconds_per_chunk": request.chunk_s or spec.seconds_per_chunk,
            "frames_per_chunk": request.num_frames or spec.frames_per_chunk,
            "top_k": request.top_k or spec.top_k,
            "method": request.method,
            "scene_method": scenes,
            "scene_threshold": threshold_of(scenes),
        }
        try:
            describer = self._describer_of(spec.model_copy(update=changed), request.tag_bank, request.caption_bank)
        except ConfigurationError as error:
            raise invalid(error.message) from None
        if request.stream_id is None:
            return describer.describe(job, 0), BEGINNING
        return self._describe_part(job, describer, request.stream_id)

    def _describe_part(
        self, job: Job, describer: VideoDescriber, stream_id: str
    ) -> tuple[DescribedVideo, StreamPosition]:
        start_ms = round((job.start_s or 0.0) * _MS)
        while True:
            state = self._streams.read(stream_id)
            before = state.position
            found = describer.describe(job, 0, average=before.average_at(start_ms))
            part = (found.fingerprint, job.start_s, job.end_s)
            if state.last == part:
                before = state.before_last
                found = describer.describe(job, 0, average=before.average_at(start_ms))
            if self._streams.advance(
                stream_id, StreamState(state.parts + 1, before.after(found), last=part, before_last=before)
            ):
                return found, before

    def _open(
        self, spec: DescribeSpec, tag_bank: tuple[str, ...] | None, caption_bank: tuple[str, ...] | None
    ) -> VideoDescriber:
        assert self._info is not None
        assert self._banks is not None
        tags, captions = self._banks
        banks = (
            self._bank_of("tag_bank", tag_bank) if tag_bank else tags,
            self._bank_of("caption_bank", caption_bank) if caption_bank else captions,
        )
        describer = open_describer(self._settings, self._pool, self._encoder, self._info, spec=spec, banks=banks)
        # By the next request, a failed video may have been replaced, or its server be back.
        return replace(describer, embedder=describer.embedder.forgetting())

    def _embed_bank(self, name: str, texts: tuple[str, ...]) -> TextBank:
        assert self._info is not None
        bank = bank_of_texts(name, texts)
        found = self._encoder.embed_texts(bank.texts)
        bank.check_lengths(found.tokens, self._info.max_tokens)
        return TextBank(texts=bank.texts, vectors=found.vectors)


def analyze_router(work: Work[AnalyzeRequest, AnalyzeAnswer]) -> APIRouter:
    return request_router(
        "analyze",
        AnalyzeRequest,
        AnalyzeAnswer,
        work,
        summary="Describe a video: tags, caption, scenes",
        description="Describe a video as `reelabel describe` does: the same frames, embeddings and label sets, hence "
        "the same row.",
    )


def answer(analyzer: Analyzer, request: AnalyzeRequest, upload: str | None) -> AnalyzeAnswer:
    """Describe the video of a request, or an uploaded one.

    Raises:
        RequestError: The video cannot be used.
        TransientError: The store or the encoder is unavailable.
    """
    started = time.perf_counter()
    job = job_from(request.model_dump(include=set(VideoRequest.model_fields)), upload=upload, questions=False)
    try:
        found, before = analyzer.describe(job, request)
    except VideoError as error:
        raise refuse_job(error.code, error.message, upload) from None
    total_ms = (time.perf_counter() - started) * 1e3
    return _to_answer(found, before, request, model=analyzer.spec.model.name, total_ms=total_ms)


def _to_answer(
    found: DescribedVideo, before: StreamPosition, request: AnalyzeRequest, *, model: str, total_ms: float
) -> AnalyzeAnswer:
    described = found.description
    # Times of a part are since the beginning of its stream; those of any other video are since its first frame.
    shift_s = before.start_s - (found.job.start_s or 0.0) if request.stream_id else 0.0
    of_scenes = {
        "scenes": [replace(each, start_s=each.start_s + shift_s, end_s=each.end_s + shift_s) for each in found.scenes],
        "scene_changes": len(found.changes.changes),
        "scene_method": found.changes.method,
        "scene_note": found.changes.note,
        "changes": [
            replace(each, time_s=each.time_s + shift_s, chunk=before.chunk + each.chunk)
            for each in found.chunk_changes()
        ],
    }
    return AnalyzeAnswer(
        duration_s=found.duration_s,
        tags=list(described.tags) if request.tags else None,
        caption=described.caption if request.caption else None,
        **(of_scenes if request.scenes else {}),
        chunks=[
            AnalyzedChunk(
                chunk=before.chunk + each.chunk.index,
                start_s=each.chunk.start_s + shift_s,
                end_s=each.chunk.end_s + shift_s,
                frames_used=each.frames,
                tags=list(each.tags) if request.tags else None,
                caption=each.caption if request.caption else None,
            )
            for each in described.chunks
        ],
        frames_used=found.frames,
        model=model,
        source_fingerprint=found.fingerprint,
        was_cached=found.was_cached,
        decode_method=found.decode_method,
        decode_note=found.decode_note,
        stream_id=request.stream_id,
        stage_ms=with_unattributed(found.cost.by_stage(), total_ms),
        total_ms=total_ms,
    )
