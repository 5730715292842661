"""URIs of members: `s3://bucket/shard-000.tar#clips/7.mp4`, `part-0.parquet#column=mp4&row=17`.

A URI names a member if a `#` follows one of the suffixes below, in any case; the first such `#` divides it. In the
part after it, `%XX` stands for a byte, so `%` itself is written `%25`; a `#` needs no encoding. A file of its own whose
name has such a `#` is named with `%23` instead.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import unquote

SUFFIXES = (".tar", ".zip", ".parquet")
# Compressed as a whole: nothing can be read by range. Named here so that it is said.
COMPRESSED_SUFFIXES = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst", ".7z", ".rar")
_SUFFIX = "|".join(re.escape(suffix) for suffix in (*SUFFIXES, *COMPRESSED_SUFFIXES))
_MEMBER = re.compile(rf"(.+?(?:{_SUFFIX}))#(.*)", re.DOTALL | re.IGNORECASE)
_WEB_MEMBER = re.compile(rf"(https?://[^?#]+?(?:{_SUFFIX})\?[^#]*)#(.*)", re.DOTALL | re.IGNORECASE)
_NOT_A_MEMBER = re.compile(rf"({_SUFFIX})%23", re.IGNORECASE)
_DIVIDED_BY = re.compile(rf"({_SUFFIX})#", re.IGNORECASE)
_ENCODED = re.compile("[%\x00-\x1f\x7f\udc80-\udcff]")
_INLINE = "data:"


class MemberUri(NamedTuple):
    """A URI of a member, in its parts.

    Attributes:
        archive: URI of the archive.
        fragment: The part after the `#`, as written.
    """

    archive: str
    fragment: str

    @property
    def name(self) -> str:
        """Name of the member; bytes that are not UTF-8 are surrogates, as in `tarfile`."""
        return unquote(self.fragment, errors="surrogateescape")

    @property
    def suffix(self) -> str:
        """Suffix of the archive, in lower case."""
        path = self.archive.lower().partition("?")[0]
        found = [suffix for suffix in (*COMPRESSED_SUFFIXES, *SUFFIXES) if path.endswith(suffix)]
        return (found or [suffix for suffix in SUFFIXES if self.archive.lower().endswith(suffix)])[0]


def split_member(uri: str) -> MemberUri | None:
    """Split a URI of a member; return None for any other URI."""
    if "#" not in uri or uri.startswith(_INLINE):
        return None
    found = _WEB_MEMBER.fullmatch(uri) or _MEMBER.fullmatch(uri)
    return MemberUri(found[1], found[2]) if found else None


def member_uri(archive: str, name: str) -> str:
    """Return the URI of a member, given the URI of its archive and its name."""
    return f"{archive}#{_ENCODED.sub(lambda found: f'%{ord(found[0]) & 0xFF:02X}', name)}"


def escape_name(uri: str) -> str:
    """Return the URI by which a file of its own is named, whatever its name."""
    return _DIVIDED_BY.sub(r"\1%23", uri)


def unescape_name(name: str) -> str:
    """Return the name that a path or key stands for; the reverse of `escape_name`."""
    return _NOT_A_MEMBER.sub(r"\1#", name)
