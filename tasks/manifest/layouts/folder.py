"""Any folder or bucket prefix of videos."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from infra.errors import ManifestError
from reelabel.errors import ConfigurationError
from reelabel.integrations.chat_messages import is_valid_unicode
from reelabel.sources.archives.member_uri import escape_name
from reelabel.sources.object_info import redact_uri
from reelabel.text import pluralize, printable
from tasks.manifest.layouts.video_files import VIDEO_SUFFIXES, suffix_of
from tasks.manifest.rejects import ImportedRows

if TYPE_CHECKING:
    from tasks.manifest.layouts.video_files import VideoFiles


def read_folder(source: VideoFiles) -> ImportedRows:
    """Make a job of each video below a folder or prefix; its id is the path below that.

    Raises:
        ConfigurationError: A column is mapped, but files have no fields.
        ManifestError: There is no video.
    """
    if source.columns:
        raise ConfigurationError("--column maps fields, and the videos of a folder have none; leave it out.")
    found = ImportedRows(source=redact_uri(source.uri), columns=source.filled)
    videos = others = 0
    for info in source.objects.list(source.uri):
        name = source.name_of(info.uri)
        if suffix_of(name) not in VIDEO_SUFFIXES:
            others += 1
            continue
        videos += 1
        if is_valid_unicode(name):
            found.add(name, partial(source.job, name, escape_name(info.uri), {}), job_id=name, given=info.uri)
        else:
            found.reject(printable(name), "the name is not UTF-8; rename it", job_id=None, given=printable(info.uri))
    if not videos:
        raise ManifestError(f"There is no video below {redact_uri(source.uri)}; check the path.")
    if others:
        found.notes.append(f"Left out {pluralize(others, 'file')} without the suffix of a video.")
    return found
