"""A manifest's URI: its date placeholders, the files that it matches, and the default name of its dataset."""

from __future__ import annotations

import os
import re
from fnmatch import fnmatchcase
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING

from infra.errors import ManifestMissingError
from reelabel.digest import json_digest
from reelabel.errors import ConfigurationError, ObjectMissingError
from reelabel.sources.object_info import WEB_SCHEMES, check_unicode, redact_uri, scheme_of

if TYPE_CHECKING:
    from datetime import datetime

    from reelabel.sources.object_store import ObjectInfo, ObjectStore

_PLACEHOLDER = re.compile(r"\{scheduled_(date|time)(?::([^{}]+))?\}")
_GLOB_CHARACTERS = "*?["
_BRACES = re.compile(r"\{[^{}]*\}?|\}")


def fill_date_placeholders(text: str, scheduled: datetime) -> str:
    """Replace date placeholders by the time for which a run was scheduled, which is in the schedule's time zone.

    They are `{scheduled_date}` (2026-11-01) and `{scheduled_time}` (2026-11-01T02:00:00+01:00), each also with a
    `strftime` format, such as `{scheduled_date:%Y/%m}`.
    """
    values = {"date": scheduled.date(), "time": scheduled}

    def fill(found: re.Match[str]) -> str:
        value = values[found[1]]
        return format(value, found[2]) if found[2] else value.isoformat()

    return _PLACEHOLDER.sub(fill, text)


def has_date_placeholders(text: str) -> bool:
    return _PLACEHOLDER.search(text) is not None


def check_date_placeholders(text: str) -> str:
    """Return a text that has no braces but those of date placeholders: a misspelt one would never match a file.

    Raises:
        ConfigurationError: It has other braces.
    """
    found = _BRACES.search(_PLACEHOLDER.sub("", text))
    if found:
        raise ConfigurationError(
            f"{found[0]} in {text} is not a date placeholder; write {{scheduled_date}}, or with a format, "
            "{scheduled_date:%Y/%m/%d}. If the braces belong to the name, write ? in place of each."
        )
    return text


def resolve_manifest_files(uri: str, objects: ObjectStore) -> list[str]:
    """List the URIs of a manifest's files, sorted. A file whose name is literally the glob takes precedence.

    Raises:
        ManifestMissingError: No file matches the glob.
        ConfigurationError: The name of a file is not UTF-8.
    """
    check_unicode(uri)
    if not is_glob(uri):
        return [uri]
    found = matching_files(uri, objects)
    for each in found:
        check_unicode(each)
    return found


def matching_files(uri: str, objects: ObjectStore) -> list[str]:
    """List the URIs of the files that a glob, local or `s3://`, matches, sorted.

    Raises:
        ManifestMissingError: No file matches.
    """
    pattern = objects.local_path(uri)
    found = sorted(_matching_files(pattern) if pattern else (info.uri for info in _matching_objects(uri, objects)))
    if not found:
        raise ManifestMissingError(f"No file matches {uri}.")
    return found


def stat_manifest_files(uri: str, objects: ObjectStore) -> list[ObjectInfo]:
    """Stat the files of a manifest; empty if there are none."""
    if is_glob(uri) and objects.local_path(uri) is None:
        return _matching_objects(uri, objects)
    try:
        return [objects.stat(part) for part in resolve_manifest_files(uri, objects)]
    except (ManifestMissingError, ObjectMissingError):
        return []


def manifest_fingerprint(uri: str, objects: ObjectStore) -> str:
    """Return a digest of the names and fingerprints of a manifest's files, which identifies its version."""
    return json_digest([[info.uri, info.fingerprint] for info in stat_manifest_files(uri, objects)])


def _matching_files(pattern: Path) -> list[str]:
    if os.path.isfile(pattern):  # noqa: PTH113 - unlike Path.is_file, accepts a name that is too long
        return [str(pattern)]
    return [name for name in glob(str(pattern)) if Path(name).is_file()]  # noqa: PTH207 - unlike Path.glob, accepts absolute patterns


def is_one_file(uri: str) -> bool:
    """Whether a scheduled manifest is the same file every time: it has no placeholders and no glob characters."""
    return not is_glob(uri) and not has_date_placeholders(uri)


def is_glob(uri: str) -> bool:
    """Whether a URI has glob characters; the queries of web addresses are no globs."""
    return scheme_of(uri) not in WEB_SCHEMES and any(character in uri for character in _GLOB_CHARACTERS)


def folder_of_glob(uri: str) -> str:
    """Return the folder or prefix above the first glob character."""
    first = min(uri.find(character) for character in _GLOB_CHARACTERS if character in uri)
    return uri[:first].rpartition("/")[0]


def _matching_objects(uri: str, objects: ObjectStore) -> list[ObjectInfo]:
    folder = folder_of_glob(uri)
    depth = uri.count("/")  # as in a shell, a star does not cross folders
    near = (info for info in objects.list(folder) if info.uri.count("/") == depth)
    found = [info for info in near if info.uri == uri or fnmatchcase(info.uri, uri)]
    return [info for info in found if info.uri == uri] or found


def dataset_name(uri: str) -> str:
    """Derive the default name of a dataset from the URI of its manifest.

    It is the name of the file; if that is a glob or a number, joined to the folders above, up to the first with a
    name: `s3://b/jobs/animals.parquet` gives animals, `s3://b/jobs/dt=2026-11-01/*.parquet` gives jobs-2026-11-01.
    """
    if scheme_of(uri) in WEB_SCHEMES:
        uri = redact_uri(uri).partition("?")[0]
    *folders, file = uri.rstrip("/").partition("://")[2].split("/") if "://" in uri else uri.rstrip("/").split("/")
    parts: list[str] = []
    for segment in (file.rsplit(".", 1)[0], *reversed(folders)):
        _, equals, value = segment.rpartition("=")
        part = re.sub(r"[*?[\]]", "", value).strip("-_. ")
        parts += [part] if part else []
        # A partition such as dt=2026-11-01 and a date do not name anything by themselves.
        if not equals and any(character.isalpha() for character in part):
            break
    return "-".join(reversed(parts)) or "manifest"


def nightly_dataset(manifest: str) -> str | None:
    """Derive the dataset of a manifest with date placeholders, one for each date; None if it has no placeholder.

    `s3://b/jobs/dt={scheduled_date}/*.parquet` gives `jobs-{scheduled_date}`: job ids may repeat from date to date.
    """
    placeholders = dict.fromkeys(found[0] for found in _PLACEHOLDER.finditer(manifest))
    if not placeholders:
        return None
    return "-".join([dataset_name(_PLACEHOLDER.sub("", manifest)), *(each.replace("/", "-") for each in placeholders)])
