"""Which files a manifest's URI means."""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING

from infra.errors import ManifestMissingError, ObjectMissingError
from tasks.domain.digest import digest_of

if TYPE_CHECKING:
    from infra.objects import ObjectInfo, ObjectStore

_GLOB_CHARACTERS = "*?["


def matching_files(uri: str, objects: ObjectStore) -> list[str]:
    """List the URIs of a manifest's files, in the order of their names.

    Args:
        uri: One file, or glob of files, local or `s3://`; a file that is called so is taken alone.
        objects: Where `s3://` leads.

    Raises:
        ManifestMissingError: No file matches the glob.
    """
    if not _is_glob(uri):
        return [uri]
    pattern = objects.local_path(uri)
    found = sorted(_matching_files(pattern) if pattern else (info.uri for info in _matching_objects(uri, objects)))
    if not found:
        raise ManifestMissingError(f"No file matches {uri}.")
    return found


def find_manifests(uri: str, objects: ObjectStore) -> list[ObjectInfo]:
    """Look at a manifest's file, or the files that its glob matches; none is no error."""
    if _is_glob(uri) and objects.local_path(uri) is None:
        return _matching_objects(uri, objects)
    try:
        return [objects.stat(part) for part in matching_files(uri, objects)]
    except (ManifestMissingError, ObjectMissingError):
        return []


def manifest_fingerprint(uri: str, objects: ObjectStore) -> str:
    """Tell versions of a manifest apart: a digest of its files' names and fingerprints."""
    return digest_of([[info.uri, info.fingerprint] for info in find_manifests(uri, objects)])


def _matching_files(pattern: Path) -> list[str]:
    if os.path.isfile(pattern):  # noqa: PTH113 - unlike Path's, bears a name that is too long
        return [str(pattern)]
    return [name for name in glob(str(pattern)) if Path(name).is_file()]  # noqa: PTH207 - takes absolute patterns too


def _is_glob(uri: str) -> bool:
    return any(character in uri for character in _GLOB_CHARACTERS)


def _matching_objects(uri: str, objects: ObjectStore) -> list[ObjectInfo]:
    first = min(uri.find(character) for character in _GLOB_CHARACTERS if character in uri)
    folder = uri[:first].rpartition("/")[0]
    depth = uri.count("/")  # a star stays within its folder, as in a shell
    near = (info for info in objects.list(folder) if info.uri.count("/") == depth)
    found = [info for info in near if info.uri == uri or fnmatchcase(info.uri, uri)]
    return [info for info in found if info.uri == uri] or found
