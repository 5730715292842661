"""Specs: everything on the run's side that can change an answer or a description."""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from reelabel.digest import json_digest
from reelabel.sampling.options import Sampling
from tasks.domain.chunks import SHORTEST_CHUNK_S, ChunkRuleName

DEFAULT_MAX_TOKENS = 64
DEFAULT_TEMPLATE = "{prompt}\n{choices}\nAnswer with the option's letter from the given choices directly."


def _is_unset(value: object) -> bool:
    return value is None


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class _Identified(_Part):
    @property
    def spec_id(self) -> str:
        """Hash of the whole spec, 16 hex digits."""
        return json_digest(self.model_dump(mode="json"))[:16]


class ModelIdentity(_Part):
    """Which weights answer the questions."""

    name: str = Field(min_length=1)
    """Hub name, or the name of the model folder."""
    revision: str | None = None
    """Hub revision."""
    fingerprint: str | None = None
    """Content hash of a local model folder."""
    base_model: ModelIdentity | None = Field(None, exclude_if=_is_unset)
    """The model that is adapted, if the name and the fingerprint are those of a LoRA adapter."""
    dtype: str = "auto"
    """Numeric type of the weights as served."""
    served_at: str | None = Field(None, exclude_if=_is_unset)
    """URL of the server, if the weights are known only by a name on it."""


FrameChoice: TypeAlias = Literal["dense", "keyframes"]
_SAMPLERS: dict[FrameChoice, str] = {"dense": "middles", "keyframes": "keyframes"}


@lru_cache(maxsize=1024)
def _sampling(sampler: str, frames: int, max_pixels: int) -> Sampling:
    # Cached: it is the same for most videos, and its checks take longer than a video's description.
    return Sampling(sampler=sampler, num_frames=frames, max_pixels=max_pixels, size_multiple_px=1)


class EmbeddingSpec(_Part):
    """Which frames of a video are embedded, and by which image-text model."""

    model: ModelIdentity
    sampler: FrameChoice = "dense"
    """Frames evenly spread over each chunk (dense), or of its keyframes alone (keyframes)."""
    seconds_per_chunk: float = Field(10.0, gt=0)
    """Seconds of a chunk."""
    frames_per_chunk: int = Field(16, ge=1, le=512)
    """Frames of a chunk."""

    def sampling(self, *, chunks: int = 1, max_pixels: int) -> Sampling:
        """Return the sampling of the frames of consecutive chunks in one pass."""
        return _sampling(_SAMPLERS[self.sampler], self.frames_per_chunk * chunks, max_pixels)


class RunSpec(_Identified):
    """How jobs are asked. Runs with equal specs share their results."""

    model: ModelIdentity
    sampling: Sampling = Sampling(max_pixels=602_112, size_multiple_px=28)
    template: str = DEFAULT_TEMPLATE
    """Prompt template of jobs without their own; {prompt} and {choices} are substituted."""
    system_prompt: str | None = None
    """System prompt of jobs without their own."""
    examples: str | None = Field(None, exclude_if=_is_unset)
    """Solved examples before the question, for jobs without their own."""
    choice_scoring: Literal["letter", "text"] = "letter"
    """Score each choice by its letter, or by the first token of its text."""
    permutations: int = Field(1, ge=1, le=26, exclude_if=lambda value: value == 1)
    """Number of orders in which the choices are shown, at most one per choice; probabilities are averaged over them."""
    max_tokens: int = Field(DEFAULT_MAX_TOKENS, ge=1, exclude_if=lambda value: value == DEFAULT_MAX_TOKENS)
    """Most tokens of an answer in words, to a job without choices."""
    video_pruning_rate: float | None = Field(None, gt=0, lt=1, exclude_if=_is_unset)
    """Fraction of a video's tokens that the model leaves out as redundant; None leaves out none."""
    chat_template_args: dict[str, JsonValue] = Field({}, exclude_if=lambda value: not value)
    """Arguments of the model's chat template, such as enable_thinking."""
    engine_args: dict[str, JsonValue] = Field({}, exclude_if=lambda value: not value)
    """Arguments of vLLM's engine that can change an answer."""
    chunk_s: float | None = Field(None, ge=SHORTEST_CHUNK_S, exclude_if=_is_unset)
    """Seconds of the chunks that jobs are cut into."""
    chunk_rule: ChunkRuleName | None = Field(None, exclude_if=_is_unset)
    """What makes one answer of those to a job's chunks."""
    once_per_duplicate: float | None = Field(None, ge=0.5, le=1, exclude_if=_is_unset)
    """Similarity of videos of which one is asked about, and whose others get its answers; None asks about all."""
    frames_as: Literal["video", "images"] = Field("video", exclude_if=lambda value: value == "video")
    """Whether frames are sent as a video or as separate images, which have no times."""
    relevance: EmbeddingSpec | None = Field(None, exclude_if=_is_unset)
    """The frames among which the sampler relevant chooses, by what model."""


Method: TypeAlias = Literal["default", "published"]


class DescribeSpec(EmbeddingSpec, _Identified):
    """How videos are described. Runs with equal specs share their results.

    Banks are named by the digests of their texts, which are kept on the store.
    """

    # Jobs are not cut: each has one description, whatever its chunks.
    chunk_s: ClassVar[None] = None

    job: Literal["describe"] = "describe"
    tags: str = Field(min_length=1)
    """Digest of the bank of tags."""
    captions: str = Field(min_length=1)
    """Digest of the bank of captions."""
    top_k: int = Field(5, ge=1)
    """Tags per chunk and per video."""
    method: Method = "default"
    """How scores are averaged and changes found."""
    scene_method: str = "auto"
    """How changes of scene are found."""
    scene_threshold: float
    """Least score of a change."""


Spec: TypeAlias = RunSpec | DescribeSpec
