"""The spec of descriptions: everything on the run's side that can change what is said of a video."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import Field

from reelabel.digest import json_digest
from tasks.domain.spec import EmbeddingSpec, RunSpec

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
