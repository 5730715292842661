"""URIs: their parts, and how messages show them; the metadata of an object; and keys of index files.

A URI names a member of an archive (`s3://bucket/shard-000.tar#clips/7.mp4`, `part-0.parquet#column=mp4&row=17`) if a
`#` follows one of the suffixes below, in any case; the first such `#` divides it. In the part after it, `%XX` stands
for a byte, so `%` itself is written `%25`; a `#` needs no encoding. A file of its own whose name has such a `#` is
named with `%23` instead.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

from reelabel.digest import json_digest
from reelabel.errors import ConfigurationError, ObjectChangedError, ObjectTooLargeError, RangesIgnoredError

if TYPE_CHECKING:
    from datetime import datetime


WEB_SCHEMES = ("http", "https")
CLOUD_SCHEMES = ("gs", "gcs", "az", "abfs", "abfss", "hf")  # read by fsspec
FSSPEC_PREFIX = "fsspec+"  # before the scheme of any other filesystem
INLINE_SCHEME = "data"
_WITHOUT_LOGIN = (None, "s3", "file", *CLOUD_SCHEMES, INLINE_SCHEME)
_SHOWN_CHARACTERS = 40
# A host is in ASCII, and its name is written out: what else parsers accept, they read as different hosts.
_WEB_URI = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://"
    r"(?:[^/?#\\\s]*@)?"
    r"(?P<host>(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]*)?)"
    r"(?P<path>(?:/[^?#]*)?)(?:\?(?P<query>[^#]*))?(?:#.*)?",
    re.DOTALL,
)
_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://|(data):")


SUFFIXES = (".tar", ".zip", ".parquet")
# Compressed as a whole: nothing can be read by range. Listed so that the error can say so.
COMPRESSED_SUFFIXES = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst", ".7z", ".rar")
_SUFFIX = "|".join(re.escape(suffix) for suffix in (*SUFFIXES, *COMPRESSED_SUFFIXES))
_MEMBER = re.compile(rf"(.+?(?:{_SUFFIX}))#(.*)", re.DOTALL | re.IGNORECASE)
_WEB_MEMBER = re.compile(rf"(https?://[^?#]+?(?:{_SUFFIX})\?[^#]*)#(.*)", re.DOTALL | re.IGNORECASE)
_NOT_A_MEMBER = re.compile(rf"({_SUFFIX})%23", re.IGNORECASE)
_DIVIDED_BY = re.compile(rf"({_SUFFIX})#", re.IGNORECASE)
_ENCODED = re.compile("[%\x00-\x1f\x7f\udc80-\udcff]")


def scheme_of(uri: str) -> str | None:
    """Return the scheme as written; None for a plain path, which may contain a colon."""
    found = _SCHEME.match(uri)
    return (found[1] or found[2]) if found else None


def is_read_by_fsspec(uri: str) -> bool:
    scheme = scheme_of(uri) or ""
    return scheme in CLOUD_SCHEMES or scheme.startswith(FSSPEC_PREFIX)


def check_unicode(uri: str) -> None:
    """Raise ConfigurationError if a path is not UTF-8, as manifests, databases and messages are."""
    try:
        uri.encode()
    except UnicodeEncodeError:
        raise ConfigurationError(f"The name {uri} is not UTF-8; rename it.") from None


def expand_home(path: str) -> Path:
    """Return a path with the home folder for its `~`; a name that begins with `~` and is no user's stays as it is."""
    return Path(os.path.expanduser(path))  # noqa: PTH111 - `Path.expanduser` raises for an unknown user


def absolute_uri(uri: str) -> str:
    """Make a local path absolute; return a URI unchanged; raises as `check_unicode` does.

    Manifests are stored with runs, and read by workers and later commands in other folders.
    """
    check_unicode(uri)
    if scheme_of(uri):
        return uri
    path, member = split_member(uri) or (uri, None)
    path = os.path.abspath(expand_home(path))  # noqa: PTH100 - resolves .. but not links
    return path if member is None else f"{path}#{member}"


def redact_uri(uri: str) -> str:
    """Shorten a URI for a message, without embedded data, user name, password and query."""
    if place := split_member(uri):
        return f"{redact_uri(place.archive)}#{_CONTROL.sub('', place.fragment)}"
    scheme = scheme_of(uri)
    if scheme == INLINE_SCHEME and len(uri) > _SHOWN_CHARACTERS:
        return f"{uri[:_SHOWN_CHARACTERS]}... ({len(uri):,} characters)"
    if scheme in _WITHOUT_LOGIN:
        return uri
    found = _WEB_URI.fullmatch(uri)
    if found is None:
        return f"{scheme}://..."  # it is ambiguous where its password ends
    shown = f"{found['scheme']}://{found['host']}{found['path']}{'?...' if found['query'] else ''}"
    return _CONTROL.sub("", shown)


def is_web_uri(uri: str) -> bool:
    """Return whether all parsers find the same host in a URI, so that messages name the one that is asked."""
    return _WEB_URI.fullmatch(uri) is not None


class MemberUri(NamedTuple):
    """A URI of a member, in its parts: that of the archive, and what follows the `#`, as written."""

    archive: str
    fragment: str

    @property
    def name(self) -> str:
        """Name of the member; bytes that are not UTF-8 are surrogates, as in `tarfile`."""
        return unquote(self.fragment, errors="surrogateescape")

    @property
    def suffix(self) -> str:
        path = self.archive.lower().partition("?")[0]
        found = [suffix for suffix in (*COMPRESSED_SUFFIXES, *SUFFIXES) if path.endswith(suffix)]
        return (found or [suffix for suffix in SUFFIXES if self.archive.lower().endswith(suffix)])[0]


def split_member(uri: str) -> MemberUri | None:
    """Split a URI of a member; return None for any other URI."""
    if "#" not in uri or uri.startswith(f"{INLINE_SCHEME}:"):
        return None
    found = _WEB_MEMBER.fullmatch(uri) or _MEMBER.fullmatch(uri)
    return MemberUri(found[1], found[2]) if found else None


def member_uri(archive: str, name: str) -> str:
    return f"{archive}#{_ENCODED.sub(lambda found: f'%{ord(found[0]) & 0xFF:02X}', name)}"


def escape_name(uri: str) -> str:
    """Return the URI of a file that is not a member of an archive, even if its name looks like one."""
    return _DIVIDED_BY.sub(r"\1%23", uri)


def unescape_name(name: str) -> str:
    """Return the name that a path or key stands for; the reverse of `escape_name`."""
    return _NOT_A_MEMBER.sub(r"\1#", name)


# The parameters that a signature consists of, by those that identify its kind. Parameters that select or change the
# content stay, such as `versionId`, `generation`, `snapshot` and `response-content-type`.
_SIGNATURES = {
    frozenset(marks.split()): re.compile(parts)
    for marks, parts in (
        ("x-amz-signature x-amz-credential", "x-amz-.*|x-id"),  # S3, version 4
        ("signature awsaccesskeyid", "signature|awsaccesskeyid|expires|x-amz-security-token"),  # S3, version 2
        ("signature key-pair-id", "signature|key-pair-id|expires|policy|hash-algorithm"),  # CloudFront
        ("x-goog-signature x-goog-credential", "x-goog-.*"),  # Google, version 4
        ("signature googleaccessid", "signature|googleaccessid|expires"),  # Google, version 2
        (
            "sig sv",  # Azure SAS
            "sig|sv|ss|srt|sp|s[et]|spr|sip|sr|si|sdd|ses|skoid|sktid|sk[tesv]|skdutid|saoid|suoid|sduoid|scid",
        ),
    )
}


def unsigned_uri(uri: str) -> str:
    """Return a URI without the parameters of its signature; one that is not signed unchanged.

    Two signed URLs that are equal without them name the same object; its fingerprint identifies the version.
    """
    if "?" not in uri or (scheme_of(uri) or "").lower() not in WEB_SCHEMES:
        return uri
    address, _, rest = uri.partition("?")
    query, mark, fragment = rest.partition("#")
    parameters = [(unquote(each.partition("=")[0]).lower(), each) for each in query.split("&")]
    names = {name for name, _ in parameters}
    for marks, parts in _SIGNATURES.items():
        if marks <= names:
            kept = "&".join(each for name, each in parameters if not parts.fullmatch(name))
            return f"{address}{'?' if kept else ''}{kept}{mark}{fragment}"
    return uri


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """Metadata of an object in a bucket, or of a file.

    `fingerprint` changes if the content does: it is made of the ETag and the size on S3, and of size and modification
    time in a file system. `modified` is None unless it is on S3 or in a folder. `note` says what is unusual about
    reading it.
    """

    uri: str
    size_bytes: int
    fingerprint: str
    modified: datetime | None = field(default=None, compare=False)
    note: str = field(default="", compare=False)

    def require(self, *, fingerprint: str | None, max_bytes: int | None) -> None:
        """Raise ObjectChangedError if the fingerprint differs, and ObjectTooLargeError if it exceeds `max_bytes`."""
        if fingerprint is not None and fingerprint != self.fingerprint:
            raise changed(self.uri)
        if max_bytes is not None and self.size_bytes > max_bytes:
            raise too_large(self.uri, max_bytes)


def changed(uri: str) -> ObjectChangedError:
    return ObjectChangedError(f"{redact_uri(uri)} was replaced while it was being read; read it again.")


def too_large(uri: str, max_bytes: int) -> ObjectTooLargeError:
    return ObjectTooLargeError(f"{redact_uri(uri)} exceeds the limit of {max_bytes:,} bytes; raise the limit.")


def part_size(uri: str, content_range: str | None, *, start: int) -> int:
    """Return the size of the range in a response, at least 1, which may be less than was requested.

    Raises RangesIgnoredError if the server sends the whole object, or another range.
    """
    found = _CONTENT_RANGE.match(content_range or "")
    if found is None or int(found[1]) != start or int(found[2]) < start:
        raise RangesIgnoredError(
            f"The server of {redact_uri(uri)} does not return the requested range; download the whole object."
        )
    return int(found[2]) + 1 - start


SCHEMA_VERSION = 6  # of frame files and index files


def index_key(*, source_uri: str, fingerprint: str, part: str | None = None) -> str:
    """Derive an index file's key, `v6/ab/abcdef....index`, which is the same for all decoder versions.

    It is of a video, or of a part of an archive, which may be all of it: an empty text.
    """
    source = {"source_uri": unsigned_uri(source_uri), "fingerprint": fingerprint, "schema": SCHEMA_VERSION}
    digest = json_digest(source if part is None else source | {"part": part})
    return f"v{SCHEMA_VERSION}/{digest[:2]}/{digest}.index"
