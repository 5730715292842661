"""Everything on the run's side that can change an answer."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from tasks.domain.digest import digest_of

DEFAULT_TEMPLATE = "{prompt}\n{choices}\nAnswer with the option's letter from the given choices directly."


class Sampling(BaseModel):
    """Which frames of a video the model sees, and at what size."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sampler: Annotated[Literal["keyframes"], Field(description="How frames are chosen.")] = "keyframes"
    num_frames: Annotated[int, Field(ge=1, le=512, description="Frames shown to the model per video.")] = 16
    max_pixels: Annotated[
        int,
        Field(ge=784, le=16_777_216, description="Most pixels of one frame; larger frames are scaled down."),
    ] = 602_112
    size_multiple_px: Annotated[
        int,
        Field(ge=1, le=128, description="Width and height are multiples of this (the model's merged patch)."),
    ] = 28


class ModelIdentity(BaseModel):
    """Which weights answer."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, Field(min_length=1, description="Hub name, or the folder's last name.")]
    revision: Annotated[str | None, Field(description="Hub revision.")] = None
    fingerprint: Annotated[str | None, Field(description="Content hash of a local model folder.")] = None
    dtype: Annotated[str, Field(description="Numeric type of the weights as served.")] = "auto"


class RunSpec(BaseModel):
    """One way of asking. Two runs with equal specs share their results."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: ModelIdentity
    sampling: Sampling = Sampling()
    template: Annotated[str, Field(description="Question layout; {prompt} and {choices} are filled in.")] = (
        DEFAULT_TEMPLATE
    )
    system_prompt: Annotated[str | None, Field(description="System message of every job without its own.")] = None
    choice_scoring: Annotated[
        Literal["letter", "text"],
        Field(description="Answer by the choice's letter, or by the first token of its own text."),
    ] = "letter"

    @cached_property
    def spec_id(self) -> str:
        """Hash of the whole spec, 16 hex digits."""
        return digest_of(self.model_dump(mode="json"))[:16]
