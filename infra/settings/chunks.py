"""Settings of how jobs on long videos are cut into chunks, the section `[chunks]`."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from infra.settings.base import SettingsSection
from infra.text_bounds import MAX_CHOICE

_SHORTEST_S = 1.0


def _check_length(chunk_s: float) -> float:
    if 0 < chunk_s < _SHORTEST_S:
        raise ValueError(f"use at least {_SHORTEST_S:g} second, or 0 to cut nothing")
    return chunk_s


class ChunkOptions(SettingsSection):
    """How jobs on long videos are cut into jobs on consecutive chunks, and their answers made one."""

    chunk_s: Annotated[
        Annotated[float, Field(ge=0, le=86_400), AfterValidator(_check_length)] | None,
        Field(description="Ask about each chunk of this many seconds of a video; off (0) by default."),
    ] = None
    chunk_rule: Annotated[
        Annotated[str, Field(min_length=1, max_length=len("any:") + MAX_CHOICE)] | None,
        Field(
            description="How the answers to chunks become the job's: majority (the default), mean of the "
            "probabilities, or any:CHOICE if one chunk suffices."
        ),
    ] = None
