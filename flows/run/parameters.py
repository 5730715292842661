"""Parameter types of the flows, with their bounds.

The flows' docstrings describe these parameters; Prefect shows them in its forms.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from infra.settings import ChunkOptions, DescribeOptions, PromptOptions, SamplingOptions, VideoPruningRate
from infra.settings.types import SettingsSection, Started
from infra.validation import PLAIN_WORDS
from tasks.results.selection import Selection

Manifest = Annotated[str, Field(min_length=1), PLAIN_WORDS]
# An emptied field of a form, or an unset shell variable, is an empty string.
Dataset = Annotated[
    Annotated[str, Field(max_length=200)] | None, BeforeValidator(lambda name: name or None), PLAIN_WORDS
]
Model = Annotated[str | None, Field(max_length=1000), PLAIN_WORDS]
Samplers = Annotated[list[str], Field(min_length=1, max_length=50), PLAIN_WORDS]
Models = Annotated[list[str], Field(max_length=20), PLAIN_WORDS]
Baseline = Annotated[str | None, Field(max_length=200), PLAIN_WORDS]
LiveUrl = Annotated[
    Annotated[str, Field(max_length=1000)] | None, BeforeValidator(lambda url: url or None), PLAIN_WORDS
]
Sample = Annotated[Annotated[int, Field(ge=2)] | None, PLAIN_WORDS]
Starts = Annotated[Started, PLAIN_WORDS]
PlanId = Annotated[str | None, Field(max_length=36), PLAIN_WORDS]
IdleTimeout = Annotated[float | None, Field(ge=0, le=86_400), PLAIN_WORDS]

EMPTY_SELECTION = Selection()


class SpecOverrides(SettingsSection):
    """Changes of a run to its spec; empty fields default to the settings, or to the run that a backfill corrects.

    Each field has a command line option, and each nested model a group in forms.
    """

    model: Annotated[
        str | None,
        Field(
            max_length=1000,
            description="Model folder or Hugging Face name; by default model.name, or in a backfill the earlier run's.",
        ),
    ] = None
    video_pruning_rate: VideoPruningRate = None
    sampling: Annotated[SamplingOptions, Field(description="How frames are chosen.")] = SamplingOptions()
    prompts: Annotated[PromptOptions, Field(description="How questions are worded.")] = PromptOptions()
    chunks: Annotated[ChunkOptions, Field(description="Whether to ask about long videos chunk by chunk.")] = (
        ChunkOptions()
    )

    def as_parameter(self) -> dict[str, Any]:
        """Return only the changed fields, as the JSON value of a flow's parameter."""
        return self.model_dump(mode="json", exclude_defaults=True)


NO_OVERRIDES = SpecOverrides()
# As parameters of flows.
Overrides = Annotated[SpecOverrides, PLAIN_WORDS]
Jobs = Annotated[Selection, PLAIN_WORDS]
NO_DESCRIBE_OPTIONS = DescribeOptions()
DescribeParameters = Annotated[DescribeOptions, PLAIN_WORDS]
