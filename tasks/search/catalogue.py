"""What can be searched: the jobs whose videos have embedding files, and whose vectors these are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from reelabel.errors import ConfigurationError
from reelabel.text import pluralize

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tasks.domain import ModelIdentity

# One row per job: `video_uri` may be shown, and so may lack what `redact_uri` leaves out. `source_fingerprint` is the
# video's when it was described. `key` is that of the embedding file, which jobs may share.
COLUMNS: dict[str, Any] = {
    "dataset": pl.String,
    "job_id": pl.String,
    "task": pl.String,
    "video_uri": pl.String,
    "source_fingerprint": pl.String,
    "key": pl.String,
}
# One row per embedding file: its key, and a hash that tells versions of videos apart.
FILES: dict[str, Any] = {"key": pl.String, "video": pl.Int64}


def require_model(models: Mapping[ModelIdentity, int], model: ModelIdentity) -> None:
    """Check that there are embeddings of a model; `models` are those of which there are, with their videos.

    Raises:
        ConfigurationError: There are none; the message names those that there are.
    """
    if model in models:
        return
    if not models:
        raise ConfigurationError("No described videos to search; run `reelabel describe` first.")
    others = "; ".join(f"{name_version(each)}: {pluralize(count, 'video')}" for each, count in models.items())
    raise ConfigurationError(
        f"No video has embeddings of the model {model.name}. There are those of other models ({others}), which cannot "
        "be compared with its vectors; name one of them with --model, or describe the videos again."
    )


def name_version(model: ModelIdentity) -> str:
    """Name a model and its version in a message."""
    version = model.revision or model.fingerprint
    return f"{model.name}{f' ({version[:8]})' if version else ''}"
