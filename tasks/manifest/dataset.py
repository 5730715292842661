"""The dataset that a manifest's jobs belong to unless another one is named."""

from __future__ import annotations

from tasks.manifest.location import split_date_placeholders

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
