"""How videos are described."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from infra.settings.types import SettingsSection, absolute_if_exists


class DescribeDefaults(SettingsSection):
    """Options of a run that describes videos, and that also have a setting."""

    tags: str | None = Field(None, min_length=1, max_length=2000)
    """Label set of tags: a text file with one per line, CSV or Parquet; defaults to 20 places."""
    captions: str | None = Field(None, min_length=1, max_length=2000)
    """Label set of captions: a text file with one per line, CSV or Parquet; defaults to 40 activities."""
    chunk_s: float | None = Field(None, ge=1, le=86_400)
    """Length of a chunk in seconds; each is described separately; defaults to 10."""
    frames_per_chunk: int | None = Field(None, ge=1, le=512)
    """Frames of each chunk, evenly spread; defaults to 16."""
    sampler: Literal["dense", "keyframes"] | None = None
    """How frames are selected: dense, exact frames anywhere in a chunk (the default); or keyframes only, which is
    cheaper."""
    model: str | None = Field(None, max_length=1000)
    """Folder or Hugging Face name of a SigLIP, SigLIP 2 or CLIP model; required."""

    @field_validator("model", "tags", "captions")
    @classmethod
    def _make_absolute(cls, name: str | None) -> str | None:
        return absolute_if_exists(name)


class DescribeOptions(DescribeDefaults):
    """What videos are compared with, and how; what is left empty is taken from the settings, or has its default."""

    top_k: int | None = Field(None, ge=1, le=1000)
    """Tags per chunk and per video; defaults to 5."""
    scene_method: str | None = Field(None, max_length=100)
    """How scene changes are found: auto (default), by pixels and embeddings; ema, by embeddings; or published."""
    scene_threshold: float | None = Field(None, ge=0, le=255)
    """Lowest score that counts as a change; defaults to the method's."""
    method: Literal["default", "published"] | None = None
    """How chunks are aggregated: default, weighted by length; or published, as in the published method."""


class DescribeSettings(DescribeDefaults):
    """How videos are described. Runs have further options."""

    revision: str | None = Field(None, max_length=200)
    """Hub revision of the model."""
    engines: Annotated[int, Field(ge=1, le=64)] | Literal["auto"] = 1
    """Embedding models to run in parallel, each on its own GPU; auto uses all visible GPUs."""
    nightly_manifest: str | None = None
    """Manifest of describe/nightly, which has the schedule of classify/nightly; if empty, the deployment is paused."""
