"""Import of the videos of a folder, and what all layouts of videos share."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from infra.errors import ManifestError
from reelabel.errors import ConfigurationError, ObjectError, VideoRefusedError
from reelabel.integrations.chat_messages import is_valid_unicode
from reelabel.sources.object_info import WEB_SCHEMES, escape_name, redact_uri, scheme_of, split_member
from reelabel.text import escape_controls, pluralize, quoted
from tasks.manifest.cells import bytes_to_id, parse_list
from tasks.manifest.importers.csv_rows import require_one_video
from tasks.manifest.importers.imported import ImportedRows, merge_repeated
from tasks.manifest.location import folder_of_glob, is_glob, matching_files
from tasks.manifest.schema import OPTIONAL, REQUIRED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from reelabel.sources.object_store import ObjectInfo, ObjectStore

_SUFFIXES = "3gp avi flv m2ts m4v mkv mov mp4 mpeg mpg mts ogv ts webm wmv"
VIDEO_SUFFIXES = frozenset(_SUFFIXES.split())
_NUMBERS = ("start_s", "end_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoFiles:
    """A file, folder or prefix of videos."""

    uri: str  # absolute; `read_folder` also takes a glob
    objects: ObjectStore = field(repr=False)
    prompt: str | None = None  # the question about each video, unless a column has it
    choices: Sequence[str] = ()  # its choices, unless a column has them; empty for answers in words
    columns: Mapping[str, str] = field(default_factory=dict)  # the source's fields by the manifest's columns

    def __post_init__(self) -> None:
        """Check that each job gets one question.

        Raises:
            ConfigurationError: It gets none, or two.
            ManifestError: The manifest has no column of this name.
        """
        require_one_video(self.columns)
        for name, value in (("prompt", self.prompt), ("choices", self.choices)):
            if value and name in self.columns:
                raise ConfigurationError(f"--{name} and --column {name}=... exclude each other; leave one out.")
        if not self.prompt and "prompt" not in self.columns:
            raise ConfigurationError(
                "This layout has no prompt of its own; add --prompt for all videos, or --column prompt=FIELD."
            )

    @property
    def filled(self) -> tuple[str, ...]:
        return (*REQUIRED, *(name for name in OPTIONAL if name in {"choices", *self.columns}))

    @property
    def fields(self) -> tuple[str, ...]:
        """The source's fields to read, which are all but that of the video."""
        return tuple(dict.fromkeys(field for name, field in self.columns.items() if name != "video_uri"))

    def job(self, job_id: str, video_uri: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the job on one video, given the values of its fields.

        Raises:
            ValueError: A field is missing or has a wrong type; the message is a clause.
        """
        job: dict[str, Any] = {"job_id": job_id, "prompt": self.prompt, "choices": [*self.choices] or None}
        job |= {name: _value(name, fields, field) for name, field in self.columns.items() if name != "video_uri"}
        if job["choices"] is not None:
            job["choices"] = merge_repeated(job["choices"], job.get("answer"))
        return job | {"video_uri": video_uri}

    def files(self, *suffixes: str) -> Iterator[ObjectInfo]:
        """Yield the file, or all files with one of the suffixes below the folder or prefix, in order of name."""
        one, shown, ends = self._one_file(), redact_uri(self.uri), f".{', .'.join(suffixes)}"
        found = [info for info in one or self.objects.list(self.uri) if suffix_of(_without_query(info.uri)) in suffixes]
        if not found:  # members are only those of archives with such a name
            raise ManifestError(
                f"{shown} does not end in {ends}." if one else f"There are no files below {shown} that end in {ends}."
            )
        yield from found

    def _one_file(self) -> list[ObjectInfo]:
        try:
            return [self.objects.stat(self.uri)]
        except ObjectError:
            return []
        except VideoRefusedError:  # it is in no folder of videos, but some of these may be below it
            path = self.objects.local_path(self.uri)
            if path is None or not (is_glob(self.uri) or path.is_dir()):
                raise
            return []

    def one_video(self) -> tuple[str, str] | None:
        """Return the name and URI of a single video: a file, a member of an archive, or a web address; else None."""
        is_web = scheme_of(self.uri) in WEB_SCHEMES
        if not (is_web or split_member(self.uri) or self._one_file()):
            return None
        path = _without_query(self.uri)
        return path.rpartition("/")[2] or path, self.uri

    def named_files(self) -> Iterator[tuple[str, str]]:
        """Yield the name and URI of each file below the folder or prefix, or else of each that the glob matches."""
        is_folder = False
        for info in self.objects.list(self.uri):
            is_folder = True
            yield self.name_of(info.uri), escape_name(info.uri)
        if not is_folder and is_glob(self.uri):
            folder = folder_of_glob(self.uri)
            for uri in matching_files(self.uri, self.objects):
                yield uri.removeprefix(f"{folder}/"), escape_name(uri)

    def name_of(self, uri: str) -> str:
        """Return the path of a file below the folder or prefix, or the name of the only file."""
        below = uri.removeprefix(f"{self.uri.rstrip('/')}/")
        return _without_query(uri).rpartition("/")[2] if below == uri else below

    def uri_of(self, place: str) -> str:
        """Return the URI of a path below the folder or prefix.

        Raises:
            ValueError: The path leads out of it.
        """
        if not place or place.startswith("/") or scheme_of(place) or ".." in place.split("/"):
            raise ValueError(f"the path {quoted(place)} does not lie below {redact_uri(self.uri)}")
        return f"{self.uri.rstrip('/')}/{escape_name(place)}"


def _without_query(uri: str) -> str:
    """Return a web address without its query, such as a signature, or any other URI unchanged."""
    return redact_uri(uri).partition("?")[0] if scheme_of(uri) in WEB_SCHEMES else uri


def suffix_of(name: str) -> str:
    """Return the suffix of a name in lower case, without its dot; empty if it has none."""
    stem, _, suffix = name.rpartition("/")[2].rpartition(".")
    return suffix.lower() if stem else ""


def is_video(name: str) -> bool:
    """Whether a path below a folder has the suffix of a video and no hidden part.

    macOS keeps attributes of `a.mp4` in `._a.mp4`, and a trash; our own home folder may be there, too.
    """
    is_hidden = any(part.startswith(".") for part in name.split("/"))
    return suffix_of(name) in VIDEO_SUFFIXES and not is_hidden


def _value(name: str, fields: Mapping[str, Any], field: str) -> Any:  # noqa: ANN401 - as the column has it
    if field not in fields:
        raise ValueError(f"it has no field {field}; its fields: {', '.join(sorted(fields)) or 'none'}")
    value = fields[field]
    if value is None:
        return None
    if isinstance(value, bytes):  # some programs write texts to Parquet without saying so
        value = bytes_to_id(value) if name == "job_id" else _decoded(value, field)
    if name == "choices":
        return _listed_choices(value, field)
    if name in _NUMBERS:
        if isinstance(value, bool) or not isinstance(value, float | int):
            raise ValueError(f"{field} {quoted(value)} is not a number of seconds")
        return float(value)
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False, default=str)  # Parquet has times in structs
    return str(value)


def _decoded(value: bytes, field: str) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise ValueError(f"{field} is not UTF-8") from None


def _listed_choices(value: object, field: str) -> list[str]:
    if isinstance(value, str):
        return parse_list(value, field)
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return value
    raise ValueError(f"{field} {quoted(value)} is not a list of choices")


def read_folder(source: VideoFiles) -> ImportedRows:
    """Make a job of one video, of each that a glob matches, or of each below a folder or prefix.

    Its id is the path below the folder.

    Raises:
        ConfigurationError: A column is mapped, but files have no fields.
        ManifestError: There is no video.
    """
    if source.columns:
        raise ConfigurationError("--column maps fields, and the videos of a folder have none; leave it out.")
    found = ImportedRows(source=redact_uri(source.uri), columns=source.filled)
    one, videos, others = source.one_video(), 0, []
    for name, uri in [one] if one else source.named_files():
        if not (one or is_video(name)):
            others.append(name)
            continue
        videos += 1
        if is_valid_unicode(name):
            found.add(name, partial(source.job, name, uri, {}), job_id=name, given=uri)
        else:
            found.reject(
                escape_controls(name), "the name is not UTF-8; rename it", job_id=None, given=escape_controls(uri)
            )
    if not videos:
        raise ManifestError(f"There is no video below {redact_uri(source.uri)}; check the path.")
    if others:
        files, first = pluralize(len(others), "file"), escape_controls(others[0])
        found.notes.append(f"Left out {files}, hidden or without the suffix of a video (first: {first}).")
    return found
