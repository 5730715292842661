"""The specs: everything on the run's side that can change an answer, or what is said of a video."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from reelabel.digest import json_digest
from reelabel.sampling.options import Sampling
from tasks.domain.chunks import SHORTEST_CHUNK_S, ChunkRuleName

DEFAULT_TEMPLATE = "{prompt}\n{choices}\nAnswer with the option's letter from the given choices directly."


def _is_unset(value: object) -> bool:
    return value is None


def _is_video(value: object) -> bool:
    return value == "video"


def _is_empty(value: object) -> bool:
    return not value


def _is_one(value: object) -> bool:
    return value == 1


class ModelIdentity(BaseModel):
    """Which weights answer the questions."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, Field(min_length=1, description="Hub name, or the name of the model folder.")]
    revision: Annotated[str | None, Field(description="Hub revision.")] = None
    fingerprint: Annotated[str | None, Field(description="Content hash of a local model folder.")] = None
    dtype: Annotated[str, Field(description="Numeric type of the weights as served.")] = "auto"
    served_at: Annotated[
        str | None,
        Field(exclude_if=_is_unset, description="URL of the server, if the weights are known only by a name on it."),
    ] = None


FrameChoice: TypeAlias = Literal["dense", "keyframes"]
_SAMPLERS: dict[FrameChoice, str] = {"dense": "middles", "keyframes": "keyframes"}


@lru_cache(maxsize=1024)
def _sampling(sampler: str, frames: int, max_pixels: int) -> Sampling:
    # Cached, as it is the same for most videos, and its checks take longer than a video's description.
    return Sampling(sampler=sampler, num_frames=frames, max_pixels=max_pixels, size_multiple_px=1)


class EmbeddingSpec(BaseModel):
    """Which frames of a video are embedded, and by which image-text model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: ModelIdentity
    sampler: Annotated[
        FrameChoice,
        Field(description="Frames evenly spread over each chunk (dense), or of its keyframes alone (keyframes)."),
    ] = "dense"
    seconds_per_chunk: Annotated[float, Field(gt=0, description="Seconds of a chunk.")] = 10.0
    frames_per_chunk: Annotated[int, Field(ge=1, le=512, description="Frames of a chunk.")] = 16

    def sampling(self, *, chunks: int = 1, max_pixels: int) -> Sampling:
        """Return how the frames of some consecutive chunks are chosen in one pass."""
        return _sampling(_SAMPLERS[self.sampler], self.frames_per_chunk * chunks, max_pixels)


class RunSpec(BaseModel):
    """How jobs are asked. Runs with equal specs share their results."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: ModelIdentity
    sampling: Sampling = Sampling(max_pixels=602_112, size_multiple_px=28)
    template: Annotated[
        str, Field(description="Prompt template of jobs without their own; {prompt} and {choices} are substituted.")
    ] = DEFAULT_TEMPLATE
    system_prompt: Annotated[str | None, Field(description="System prompt of jobs without their own.")] = None
    examples: Annotated[
        str | None,
        Field(exclude_if=_is_unset, description="Solved examples before the question, for jobs without their own."),
    ] = None
    choice_scoring: Annotated[
        Literal["letter", "text"],
        Field(description="Score each choice by its letter, or by the first token of its text."),
    ] = "letter"
    permutations: Annotated[
        int,
        Field(
            ge=1,
            le=26,
            exclude_if=_is_one,
            description="Number of orders in which the choices are shown, at most one per choice; "
            "probabilities are averaged over them.",
        ),
    ] = 1
    video_pruning_rate: Annotated[
        float | None,
        Field(
            gt=0,
            lt=1,
            exclude_if=_is_unset,
            description="Fraction of a video's tokens that the model leaves out as redundant; None leaves out none.",
        ),
    ] = None
    chat_template_args: Annotated[
        dict[str, JsonValue],
        Field(exclude_if=_is_empty, description="Arguments of the model's chat template, such as enable_thinking."),
    ] = {}
    engine_args: Annotated[
        dict[str, JsonValue],
        Field(exclude_if=_is_empty, description="Arguments of vLLM's engine that can change an answer."),
    ] = {}
    chunk_s: Annotated[
        float | None,
        Field(ge=SHORTEST_CHUNK_S, exclude_if=_is_unset, description="Seconds of the chunks that jobs are cut into."),
    ] = None
    chunk_rule: Annotated[
        ChunkRuleName | None,
        Field(exclude_if=_is_unset, description="What makes one answer of those to a job's chunks."),
    ] = None
    frames_as: Annotated[
        Literal["video", "images"],
        Field(
            exclude_if=_is_video,
            description="Whether frames are sent as a video or as separate images, which have no times.",
        ),
    ] = "video"

    relevance: Annotated[
        EmbeddingSpec | None,
        Field(exclude_if=_is_unset, description="The frames among which the sampler relevant chooses, by what model."),
    ] = None

    @property
    def spec_id(self) -> str:
        """Hash of the whole spec, 16 hex digits."""
        return json_digest(self.model_dump(mode="json"))[:16]


Method: TypeAlias = Literal["default", "published"]


class DescribeSpec(EmbeddingSpec):
    """How videos are described. Runs with equal specs share their results.

    Banks are named by the digests of their texts, which are kept on the store.
    """

    # Jobs are not cut as those of `RunSpec` are: each is one description, whatever its chunks.
    chunk_s: ClassVar[None] = None

    job: Literal["describe"] = "describe"
    tags: Annotated[str, Field(min_length=1, description="Digest of the bank of tags.")]
    captions: Annotated[str, Field(min_length=1, description="Digest of the bank of captions.")]
    top_k: Annotated[int, Field(ge=1, description="Tags per chunk and per video.")] = 5
    method: Annotated[Method, Field(description="How scores are averaged and changes found.")] = "default"
    scene_method: Annotated[str, Field(description="How changes of scene are found.")] = "auto"
    scene_threshold: Annotated[float, Field(description="Least score of a change.")]

    @property
    def spec_id(self) -> str:
        """Hash of the whole spec, 16 hex digits."""
        return json_digest(self.model_dump(mode="json"))[:16]


Spec: TypeAlias = RunSpec | DescribeSpec
