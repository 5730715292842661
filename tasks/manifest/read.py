"""Read a manifest's jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tasks.manifest.digests import rows_to_jobs
from tasks.manifest.schema import ROW
from tasks.manifest.table import open_jobs

if TYPE_CHECKING:
    from infra.objects import ObjectStore
    from tasks.domain import Job


def read_jobs(uri: str, objects: ObjectStore) -> list[Job]:
    """Read and validate a manifest into memory; for large ones, use `open_jobs`.

    Raises:
        ManifestError: The manifest is invalid; the message lists every fault, with counts and first rows.
    """
    with open_jobs(uri, objects) as table:
        return rows_to_jobs(pl.concat(table.parts()).sort(ROW))


def dataset_name(uri: str) -> str:
    """Derive a dataset's default name from its manifest: the stem of the file, without glob characters."""
    stem = uri.rstrip("/").rsplit("/", 1)[-1].rsplit(".", 1)[0]
    cleaned = "".join(character for character in stem if character not in "*?[]").strip("-_. ")
    return cleaned or "manifest"
