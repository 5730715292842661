"""Parameter types of the flows, with their bounds.

The flows' docstrings describe these parameters; Prefect shows them in its forms.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from infra.settings import PromptOptions
from infra.settings.sampling import SamplingOptions
from tasks.results.selection import Selection

Manifest = Annotated[str, Field(min_length=1)]
# An emptied field of a form, or an unset shell variable, is an empty string.
Dataset = Annotated[Annotated[str, Field(max_length=200)] | None, BeforeValidator(lambda name: name or None)]
NumFrames = Annotated[int | None, Field(ge=1, le=512)]
Permutations = Annotated[int | None, Field(ge=1, le=26)]
Model = Annotated[str | None, Field(max_length=1000)]
Samplers = Annotated[list[str], Field(min_length=1, max_length=50)]
Models = Annotated[list[str], Field(max_length=20)]
Baseline = Annotated[str | None, Field(max_length=200)]
PlanId = Annotated[str | None, Field(max_length=36)]
IdleTimeout = Annotated[float | None, Field(ge=0, le=86_400)]

DEFAULT_SAMPLING = SamplingOptions()
DEFAULT_PROMPTS = PromptOptions()
EMPTY_SELECTION = Selection()
