"""Schemes of URIs, and how URIs are shown in messages."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

WEB_SCHEMES = ("http", "https")
INLINE_SCHEME = "data"
_SHOWN_CHARACTERS = 40
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://|(data):")


def scheme_of(uri: str) -> str | None:
    """Return the scheme as written; None for a plain path, which may contain a colon."""
    found = _SCHEME.match(uri)
    return (found[1] or found[2]) if found else None


def absolute_uri(uri: str) -> str:
    """Make a local path absolute; return a URI unchanged.

    Manifests are stored with runs, and read by workers and later commands in other folders.
    """
    return uri if scheme_of(uri) else os.path.abspath(Path(uri).expanduser())  # noqa: PTH100 - resolves .. but not links


def redact_uri(uri: str) -> str:
    """Shorten a URI for a message, without embedded data, user name, password and query."""
    scheme = scheme_of(uri)
    if scheme == INLINE_SCHEME and len(uri) > _SHOWN_CHARACTERS:
        return f"{uri[:_SHOWN_CHARACTERS]}... ({len(uri):,} characters)"
    if scheme not in WEB_SCHEMES:
        return uri
    try:
        parts = urlsplit(uri)
    except ValueError:  # the brackets contain no valid address
        return f"{uri[:_SHOWN_CHARACTERS]}..."
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "..." if parts.query else "", ""))
