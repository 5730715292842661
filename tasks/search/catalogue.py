"""The searchable videos: jobs with embedding files, and their models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from reelabel.errors import ConfigurationError
from reelabel.text import pluralize

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tasks.domain import ModelIdentity

# One row per job: `video_uri` is redacted for display. `source_fingerprint` is the video's when it was described. `key`
# is that of the embedding file, which jobs may share.
COLUMNS: dict[str, Any] = {
    "dataset": pl.String,
    "job_id": pl.String,
    "task": pl.String,
    "video_uri": pl.String,
    "source_fingerprint": pl.String,
    "key": pl.String,
}
# One row per embedding file: its key, and a hash that distinguishes versions of videos.
FILES: dict[str, Any] = {"key": pl.String, "video": pl.Int64}


def require_model(models: Mapping[ModelIdentity, int], model: ModelIdentity) -> None:
    """Check that there are embeddings of a model; `models` are those with embeddings, and their numbers of videos.

    Raises:
        ConfigurationError: There are none; the message lists the models that have some.
    """
    if model in models:
        return
    if not models:
        raise ConfigurationError("No described videos to search; run `reelabel describe` first.")
    others = "; ".join(f"{name_version(each)}: {pluralize(count, 'video')}" for each, count in models.items())
    raise ConfigurationError(
        f"No video has embeddings of the model {model.name}. Other models have some ({others}), which cannot be "
        f"compared with its vectors; name one of them with --model, or describe the videos again."
    )


def name_version(model: ModelIdentity) -> str:
    """Format a model's name and version for a message."""
    version = model.revision or model.fingerprint
    return f"{model.name}{f' ({version[:8]})' if version else ''}"
