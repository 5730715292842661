"""The spec of descriptions: everything on the run's side that can change what is said of a video."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from reelabel.digest import json_digest
from reelabel.sampling.options import Sampling
from tasks.domain.spec import ModelIdentity, RunSpec

Method: TypeAlias = Literal["default", "published"]
FrameChoice: TypeAlias = Literal["dense", "keyframes"]
_SAMPLERS: dict[FrameChoice, str] = {"dense": "middles", "keyframes": "keyframes"}


class DescribeSpec(BaseModel):
    """How videos are described. Runs with equal specs share their results.

    Banks are named by the digests of their texts, which are kept on the store.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    # Jobs are not cut as those of `RunSpec` are: each is one description, whatever its chunks.
    chunk_s: ClassVar[None] = None

    job: Literal["describe"] = "describe"
    model: ModelIdentity
    sampler: Annotated[
        FrameChoice,
        Field(description="Frames evenly spread over each chunk (dense), or of its keyframes alone (keyframes)."),
    ] = "dense"
    seconds_per_chunk: Annotated[float, Field(gt=0, description="Seconds of a chunk.")] = 10.0
    frames_per_chunk: Annotated[int, Field(ge=1, le=512, description="Frames of a chunk.")] = 16
    tags: Annotated[str, Field(min_length=1, description="Digest of the bank of tags.")]
    captions: Annotated[str, Field(min_length=1, description="Digest of the bank of captions.")]
    top_k: Annotated[int, Field(ge=1, description="Tags per chunk and per video.")] = 5
    method: Annotated[Method, Field(description="How scores are averaged and changes found.")] = "default"
    scene_method: Annotated[str, Field(description="How changes of scene are found.")] = "auto"
    scene_threshold: Annotated[float, Field(description="Least score of a change.")]

    @cached_property
    def spec_id(self) -> str:
        """Hash of the whole spec, 16 hex digits."""
        return json_digest(self.model_dump(mode="json"))[:16]

    def sampling(self, *, chunks: int = 1, max_pixels: int) -> Sampling:
        """Return how the frames of some consecutive chunks are chosen in one pass."""
        return Sampling(
            sampler=_SAMPLERS[self.sampler],
            num_frames=self.frames_per_chunk * chunks,
            max_pixels=max_pixels,
            size_multiple_px=1,
        )


Spec: TypeAlias = RunSpec | DescribeSpec
