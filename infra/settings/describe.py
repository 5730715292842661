"""Settings of how videos are described, the section `[describe]`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator

from infra.settings.base import SettingsSection
from infra.settings.schedule import Cron  # noqa: TC001 - pydantic reads it


class DescribeOptions(SettingsSection):
    """What videos are compared with, and how; what is left empty is taken from the settings, or has its default."""

    tags: Annotated[
        Annotated[str, Field(min_length=1, max_length=2000)] | None,
        Field(description="Bank of tags: a text file with one a line, CSV or Parquet; by default 20 places."),
    ] = None
    captions: Annotated[
        Annotated[str, Field(min_length=1, max_length=2000)] | None,
        Field(description="Bank of captions: a text file with one a line, CSV or Parquet; by default 40 activities."),
    ] = None
    top_k: Annotated[int | None, Field(ge=1, le=1000, description="Tags per chunk and per video; defaults to 5.")] = (
        None
    )
    chunk_s: Annotated[
        float | None,
        Field(
            ge=1, le=86_400, description="Length of a chunk in seconds; each is described separately; defaults to 10."
        ),
    ] = None
    frames_per_chunk: Annotated[
        int | None, Field(ge=1, le=512, description="Frames of each chunk, evenly spread; defaults to 16.")
    ] = None
    sampler: Annotated[
        Literal["dense", "keyframes"] | None,
        Field(
            description="How frames are chosen: dense, exact anywhere in a chunk (the default); or keyframes alone, "
            "which is cheaper."
        ),
    ] = None
    model: Annotated[
        str | None,
        Field(
            max_length=1000,
            description="Folder or Hugging Face name of a SigLIP, SigLIP 2 or CLIP model; must be named.",
        ),
    ] = None
    scene_method: Annotated[
        str | None,
        Field(
            max_length=100,
            description="How changes of scene are found: auto (the default), by pixels and embeddings; ema, by "
            "embeddings alone; or published.",
        ),
    ] = None
    scene_threshold: Annotated[
        float | None, Field(ge=0, le=255, description="Lowest score that counts as a change; defaults to the method's.")
    ] = None
    method: Annotated[
        Literal["default", "published"] | None,
        Field(
            description="How chunks make one description: default, weighted by their lengths; or published, which "
            "repeats the published method exactly, to compare with it."
        ),
    ] = None

    @field_validator("model", "tags", "captions")
    @classmethod
    def _hold_from_any_folder(cls, name: str | None) -> str | None:
        """Make paths absolute: workers run in other folders."""
        path = Path(name).expanduser() if name and "://" not in name else None
        is_there = path and os.path.exists(path)  # noqa: PTH110 - accepts a name that is too long, unlike Path.exists
        return str(path.absolute()) if path and is_there else name


class DescribeSettings(DescribeOptions):
    """How videos are described, and by which model."""

    revision: Annotated[str | None, Field(max_length=200, description="Hub revision of the model.")] = None
    engines: Annotated[
        Annotated[int, Field(ge=1, le=64)] | Literal["auto"],
        Field(description="Encoder processes to run in parallel, each on its own GPU; auto uses all visible GPUs."),
    ] = 1
    batch_frames: Annotated[int, Field(ge=1, le=4096, description="Frames per request to the model.")] = 128
    nightly_manifest: Annotated[
        str | None, Field(description="Manifest of describe/nightly; if empty, the deployment is paused.")
    ] = None
    nightly_dataset: Annotated[
        str | None,
        Field(
            max_length=200, description="Dataset of describe/nightly; the default follows the rule of nightly.dataset."
        ),
    ] = None
    nightly_cron: Annotated[
        Cron | None, Field(description="Schedule of describe/nightly; defaults to nightly.cron.")
    ] = None
    concurrent_shards: Annotated[int, Field(ge=1, le=64, description="Shards described at the same time.")] = 3
