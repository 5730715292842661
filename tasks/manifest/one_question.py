"""One question about all videos of a folder or glob, or about one video, and the manifest made of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING

from reelabel.digest import json_digest
from reelabel.errors import ConfigurationError
from reelabel.integrations.chat_messages import is_valid_unicode
from reelabel.sources.object_info import INLINE_SCHEME, absolute_uri, expand_home, redact_uri, scheme_of
from reelabel.text import pluralize
from tasks.manifest.cells import parse_list
from tasks.manifest.check import check_row
from tasks.manifest.importers.videos import VIDEO_SUFFIXES, VideoFiles, read_folder, suffix_of
from tasks.manifest.location import folder_of_glob, is_glob

if TYPE_CHECKING:
    from collections.abc import Iterator

    import polars as pl

    from reelabel.sources.object_store import ObjectStore

_TABLES = frozenset({"parquet", "csv", "tsv", "jsonl", "ndjson"})
_SHOWN = 3
_NAME_CHARACTERS, _DIGEST_CHARACTERS = 40, 12
_ASK = '--prompt "Is there a person?" --choices "yes|no"'


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionOnVideos:
    """A question about each video of a source."""

    source: str  # a folder or prefix, a glob, or one video; absolute
    prompt: str
    choices: tuple[str, ...]  # empty for answers in words

    @classmethod
    def of(cls, source: str, prompt: str | None, choices: str | None) -> QuestionOnVideos | None:
        """Parse the arguments of a command; return None if they name a manifest.

        Raises:
            ConfigurationError: There are videos without a question, or a manifest with one; or the question is invalid.
        """
        if prompt is None and choices is None:
            _require_manifest(source)
            return None
        if not source:
            raise ConfigurationError("No videos given; name a folder, a glob in quotes, or one video.")
        if suffix_of(source) in _TABLES:
            raise ConfigurationError(
                f"{source} has questions of its own; leave out --prompt and --choices, or name a folder of videos."
            )
        if prompt is None:
            raise ConfigurationError(f"--choices needs a question, such as {_ASK}.")
        if not is_valid_unicode(f"{prompt}{choices}"):
            raise ConfigurationError("--prompt and --choices are not UTF-8; write them in UTF-8.")
        if scheme_of(source) == INLINE_SCHEME:
            raise ConfigurationError("Videos in data: are asked about by a manifest; save this one as a file.")
        try:
            found = () if choices is None else tuple(parse_list(choices, "--choices"))
        except ValueError as error:
            raise ConfigurationError(f"{error}.") from None
        row = {"job_id": "video", "video_uri": "video.mp4", "prompt": prompt}
        listed = {} if choices is None else {"choices": [*found]}
        if faults := check_row({**row, **listed}):
            raise ConfigurationError(f"The question cannot be asked: {' '.join(faults)}")
        uri = absolute_uri(source)
        return cls(source=uri if uri == "/" else uri.rstrip("/"), prompt=prompt, choices=found)

    @property
    def name(self) -> str:
        """Name of the manifest and its dataset: that of the folder or video, and a digest of source and question."""
        folder = folder_of_glob(self.source) if is_glob(self.source) else self.source
        last = redact_uri(folder).partition("?")[0].rpartition("/")[2]
        stem = last.rpartition(".")[0] if suffix_of(last) in VIDEO_SUFFIXES else last
        words = re.sub(r"[^\w-]+", "-", stem).strip("-")
        digest = json_digest([self.source, self.prompt, [*self.choices]])[:_DIGEST_CHARACTERS]
        return f"{words[:_NAME_CHARACTERS] or 'videos'}-{digest}"

    def find_videos(self, videos: ObjectStore) -> VideoJobs:
        """List the videos as jobs, whose ids are their paths below the folder.

        Raises:
            ManifestError: There is no video.
            ConfigurationError: The store refuses access, or the scheme is unknown.
        """
        found = read_folder(VideoFiles(uri=self.source, objects=videos, prompt=self.prompt, choices=self.choices))
        jobs, rejects = found.divided()
        return VideoJobs(name=self.name, jobs=jobs, notes=(*found.notes, *_rejected(rejects)), left_out=len(rejects))


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoJobs:
    """The jobs of one question about several videos."""

    name: str  # of their manifest, the same for the same question and source
    jobs: pl.DataFrame  # the rows of the manifest
    notes: tuple[str, ...]  # sentences on the files that are left out
    left_out: int  # number of videos left out because of their names

    def write(self, objects: ObjectStore, store_uri: str) -> str:
        """Write the manifest to the store, in place of an earlier one of this name; return its URI."""
        uri = f"{store_uri.rstrip('/')}/questions/{self.name}.parquet"
        parquet = BytesIO()
        self.jobs.write_parquet(parquet)
        objects.replace(uri, parquet.getvalue())
        return uri


def _require_manifest(source: str) -> None:
    if not source:
        raise ConfigurationError("No manifest given; use a Parquet file or a glob, or --prompt and a folder of videos.")
    path = None if scheme_of(source) else expand_home(source)
    if path and path.is_dir():
        what = f"{source} is a folder, not a manifest"
    elif source.endswith("/"):
        what = f"{source} is a prefix, not a manifest"
    elif suffix_of(source) in VIDEO_SUFFIXES:
        what = f"{source} names {'videos' if is_glob(source) else 'a video'}, not a manifest"
    else:
        return
    raise ConfigurationError(f"{what}; to ask about its videos, add a question, such as {_ASK}.")


def _rejected(rejects: pl.DataFrame) -> Iterator[str]:
    for (reason,), rows in rejects.group_by(["reason"], maintain_order=True):
        first = ", ".join(rows["place"].head(_SHOWN))
        yield f"Left out {pluralize(len(rows), 'video')} (first: {first}): {reason}"
