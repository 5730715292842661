"""Which files a manifest's URI means, dates in it, and the dataset that it names unless another one is named."""

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
from reelabel.sources.object_info import check_unicode

if TYPE_CHECKING:
    from datetime import datetime

    from reelabel.sources.object_store import ObjectInfo, ObjectStore

_PLACEHOLDER = re.compile(r"\{scheduled_(date|time)(?::([^{}]+))?\}")
_BRACES = re.compile(r"\{[^{}]*\}?|\}")


def fill_date_placeholders(text: str, scheduled: datetime) -> str:
    """Replace date placeholders by the time for which a run was scheduled.

    Args:
        text: May contain `{scheduled_date}` (2026-11-01), `{scheduled_time}` (2026-11-01T02:00:00+01:00), and
            either with a `strftime` format: `{scheduled_date:%Y/%m}`.
        scheduled: Scheduled time, in the schedule's time zone.
    """
    values = {"date": scheduled.date(), "time": scheduled}
    return _PLACEHOLDER.sub(lambda found: _formatted(values[found[1]], found[2]), text)


def has_date_placeholders(text: str) -> bool:
    """Check whether a text contains date placeholders."""
    return _PLACEHOLDER.search(text) is not None


def split_date_placeholders(text: str) -> tuple[str, list[str]]:
    """Return a text without its date placeholders, and these."""
    return _PLACEHOLDER.sub("", text), [found[0] for found in _PLACEHOLDER.finditer(text)]


def check_date_placeholders(text: str) -> str:
    """Reject unknown placeholders: a URI that never matches anything would go unnoticed.

    Raises:
        ConfigurationError: There are other braces than those of date placeholders.
    """
    found = _BRACES.search(_PLACEHOLDER.sub("", text))
    if found:
        raise ConfigurationError(
            f"{found[0]} in {text} is not a date placeholder; write {{scheduled_date}}, or with a format, "
            "{scheduled_date:%Y/%m/%d}. If the braces belong to the name, write ? in place of each."
        )
    return text


def _formatted(value: object, form: str | None) -> str:
    return format(value, form) if form else value.isoformat()  # type: ignore[attr-defined]


_GLOB_CHARACTERS = "*?["


def resolve_manifest_files(uri: str, objects: ObjectStore) -> list[str]:
    """List the URIs of a manifest's files, sorted.

    A glob may be local or `s3://`; a file whose name is literally the glob takes precedence.

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
    """List the URIs of the files that a glob matches, sorted.

    Raises:
        ManifestMissingError: No file matches.
    """
    pattern = objects.local_path(uri)
    found = sorted(_matching_files(pattern) if pattern else (info.uri for info in _matching_objects(uri, objects)))
    if not found:
        raise ManifestMissingError(f"No file matches {uri}.")
    return found


def stat_manifest_files(uri: str, objects: ObjectStore) -> list[ObjectInfo]:
    """Stat a manifest's file, or the files that its glob matches; empty if there are none."""
    if is_glob(uri) and objects.local_path(uri) is None:
        return _matching_objects(uri, objects)
    try:
        return [objects.stat(part) for part in resolve_manifest_files(uri, objects)]
    except (ManifestMissingError, ObjectMissingError):
        return []


def manifest_fingerprint(uri: str, objects: ObjectStore) -> str:
    """Identify a version of a manifest: a digest of its files' names and fingerprints."""
    return json_digest([[info.uri, info.fingerprint] for info in stat_manifest_files(uri, objects)])


def _matching_files(pattern: Path) -> list[str]:
    if os.path.isfile(pattern):  # noqa: PTH113 - unlike Path.is_file, accepts a name that is too long
        return [str(pattern)]
    return [name for name in glob(str(pattern)) if Path(name).is_file()]  # noqa: PTH207 - unlike Path.glob, accepts absolute patterns


def is_one_file(uri: str) -> bool:
    """Check whether a manifest is the same file every night: without placeholders or glob characters."""
    return not is_glob(uri) and not has_date_placeholders(uri)


def is_glob(uri: str) -> bool:
    """Check whether a URI has glob characters."""
    return any(character in uri for character in _GLOB_CHARACTERS)


def folder_of_glob(uri: str) -> str:
    """Return the folder, or prefix, that contains all that a glob can match."""
    first = min(uri.find(character) for character in _GLOB_CHARACTERS if character in uri)
    return uri[:first].rpartition("/")[0]


def _matching_objects(uri: str, objects: ObjectStore) -> list[ObjectInfo]:
    folder = folder_of_glob(uri)
    depth = uri.count("/")  # as in a shell, a star does not cross folders
    near = (info for info in objects.list(folder) if info.uri.count("/") == depth)
    found = [info for info in near if info.uri == uri or fnmatchcase(info.uri, uri)]
    return [info for info in found if info.uri == uri] or found


_DEFAULT = "manifest"


def dataset_name(uri: str) -> str:
    """Derive a dataset's default name from its manifest.

    It is the name of the file or, if that is a glob or a number, of the folders above, up to the first with a name of
    its own: `s3://b/jobs/animals.parquet` is animals, `s3://b/jobs/dt=2026-11-01/*.parquet` is jobs-2026-11-01.
    """
    *folders, file = uri.rstrip("/").partition("://")[2].split("/") if "://" in uri else uri.rstrip("/").split("/")
    parts: list[str] = []
    for segment in (file.rsplit(".", 1)[0], *reversed(folders)):
        _, equals, value = segment.rpartition("=")
        part = _without_globs(value)
        parts += [part] if part else []
        # A partition such as dt=2026-11-01 and a date do not name anything by themselves.
        if not equals and any(character.isalpha() for character in part):
            break
    return "-".join(reversed(parts)) or _DEFAULT


def nightly_dataset(manifest: str) -> str | None:
    """Derive the datasets of a manifest with date placeholders, one for each date; None if it has none.

    `s3://b/jobs/dt={scheduled_date}/*.parquet` gives `jobs-{scheduled_date}`: job ids may repeat every night.
    """
    rest, placeholders = split_date_placeholders(manifest)
    if not placeholders:
        return None
    return "-".join([dataset_name(rest), *(each.replace("/", "-") for each in dict.fromkeys(placeholders))])


def _without_globs(segment: str) -> str:
    return "".join(character for character in segment if character not in "*?[]").strip("-_. ")
