"""Reading manifests from files, folders' globs and object storage."""

from __future__ import annotations

import io
from fnmatch import fnmatchcase
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from infra.errors import ManifestError, ObjectMissingError
from tasks.domain import Job
from tasks.manifest.check import check_manifest, conform
from tasks.manifest.messages import resolve_messages

if TYPE_CHECKING:
    from infra.objects import ObjectStore

_GLOB_CHARACTERS = "*?["


def read_manifest(uri: str, objects: ObjectStore) -> pl.DataFrame:
    """Read a manifest's rows as they stand.

    Args:
        uri: Parquet file, or glob of such, local or `s3://`.
        objects: Where `s3://` leads.

    Raises:
        ManifestError: Nothing stands there, or it is not Parquet, or its parts differ in type.
    """
    parts = [_read_part(part, objects) for part in _matches(uri, objects)]
    try:
        return pl.concat(parts, how="diagonal_relaxed")
    except pl.exceptions.PolarsError as error:
        raise ManifestError(f"The files of {uri} differ in their columns' types: {error}.") from None


def read_jobs(uri: str, objects: ObjectStore) -> list[Job]:
    """Read and check a manifest.

    Raises:
        ManifestError: Every fault, with its first rows and counts; nothing may start.
    """
    frame = read_manifest(uri, objects)
    faults = check_manifest(frame)
    if faults:
        raise ManifestError(f"{uri} cannot be run:\n" + "\n".join(f"  - {fault}" for fault in faults))
    conformed, _ = conform(frame)
    resolved, _ = resolve_messages(conformed)
    return [Job(**row | {"choices": tuple(row["choices"])}) for row in resolved.iter_rows(named=True)]


def dataset_name(uri: str) -> str:
    """Derive a dataset's default name from its manifest: the file's stem, without glob characters."""
    stem = uri.rstrip("/").rsplit("/", 1)[-1].rsplit(".", 1)[0]
    cleaned = "".join(character for character in stem if character not in "*?[]").strip("-_. ")
    return cleaned or "manifest"


def _matches(uri: str, objects: ObjectStore) -> list[str]:
    if not any(character in uri for character in _GLOB_CHARACTERS):
        return [uri]
    pattern = objects.local_path(uri)
    found = sorted(_matching_files(pattern) if pattern else _matching_objects(uri, objects))
    if not found:
        raise ManifestError(f"No file matches {uri}.")
    return found


def _matching_files(pattern: Path) -> list[str]:
    return [name for name in glob(str(pattern)) if Path(name).is_file()]  # noqa: PTH207 - takes absolute patterns too


def _matching_objects(uri: str, objects: ObjectStore) -> list[str]:
    first = min(uri.find(character) for character in _GLOB_CHARACTERS if character in uri)
    folder = uri[:first].rpartition("/")[0]
    depth = uri.count("/")  # a star stays within its folder, as in a shell
    return [info.uri for info in objects.list(folder) if info.uri.count("/") == depth and fnmatchcase(info.uri, uri)]


def _read_part(uri: str, objects: ObjectStore) -> pl.DataFrame:
    try:
        data = objects.read(uri)
    except ObjectMissingError:
        raise ManifestError(
            f"There is no manifest file at {uri}; for all files of a folder, write folder/*.parquet."
        ) from None
    try:
        return pl.read_parquet(io.BytesIO(data))
    except (pl.exceptions.PolarsError, OSError):
        raise ManifestError(f"{uri} is not a Parquet file; `reelabel manifest import` makes one from CSV.") from None
