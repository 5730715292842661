"""What can be searched: the jobs whose videos have embedding files, and whose vectors these are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import polars as pl

from reelabel.digest import json_digest
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


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorSpace:
    """Vectors that can be compared with one another: those of one model, of one size.

    Attributes:
        model: The model, with its revision or the fingerprint of its folder.
        dimensions: Size of a vector.
    """

    model: ModelIdentity
    dimensions: int

    @property
    def key(self) -> str:
        """Name of its folder, 32 hex digits."""
        return json_digest({"model": self.model.model_dump(mode="json"), "dimensions": self.dimensions})

    def refuse(self, model: ModelIdentity, dimensions: int) -> str:
        """Return why vectors do not belong to this space; empty if they do."""
        other = VectorSpace(model=model, dimensions=dimensions)
        return "" if other == self else f"Its vectors are of {other}, and cannot be compared with those of {self}."

    def __str__(self) -> str:
        """Name it in a message."""
        version = self.model.revision or self.model.fingerprint
        return f"{self.model.name}{f' ({version[:8]})' if version else ''}, {self.dimensions} dimensions"


class Catalogue(Protocol):
    """Knows the embedding files that are in use, of all spaces."""

    def spaces(self) -> Mapping[VectorSpace, int]:
        """Return the number of videos of each space."""
        ...

    def files(self, space: VectorSpace, *, dataset: str | None = None, task: str | None = None) -> pl.DataFrame:
        """Return the embedding files of a space, all or those of a dataset or task, with the columns of `FILES`."""
        ...


def choose_space(catalogue: Catalogue, model: ModelIdentity) -> VectorSpace:
    """Return the space of a model.

    Raises:
        ConfigurationError: There are no embeddings of it; the message names those that there are.
    """
    spaces = catalogue.spaces()
    found = [space for space in spaces if space.model == model]
    if found:
        return max(found, key=lambda space: spaces[space])
    if not spaces:
        raise ConfigurationError("There is nothing to search yet; `reelabel describe` makes the embeddings of videos.")
    others = "; ".join(f"{space}: {pluralize(count, 'video')}" for space, count in spaces.items())
    raise ConfigurationError(
        f"No video has embeddings of the model {model.name}. There are those of other models ({others}), which cannot "
        "be compared with its vectors; name one of them with --model, or describe the videos again."
    )
