"""Any folder or bucket prefix of videos, a glob of them, or one video."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from infra.errors import ManifestError
from reelabel.errors import ConfigurationError
from reelabel.integrations.chat_messages import is_valid_unicode
from reelabel.sources.object_info import redact_uri
from reelabel.text import pluralize, printable
from tasks.manifest.layouts.video_files import is_video
from tasks.manifest.rejects import ImportedRows

if TYPE_CHECKING:
    from tasks.manifest.layouts.video_files import VideoFiles


def read_folder(source: VideoFiles) -> ImportedRows:
    """Make a job of each video: a file, those that a glob matches, or all below a folder or prefix.

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
            found.reject(printable(name), "the name is not UTF-8; rename it", job_id=None, given=printable(uri))
    if not videos:
        raise ManifestError(f"There is no video below {redact_uri(source.uri)}; check the path.")
    if others:
        files, first = pluralize(len(others), "file"), printable(others[0])
        found.notes.append(f"Left out {files}, hidden or without the suffix of a video (first: {first}).")
    return found
