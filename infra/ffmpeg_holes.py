"""Known holes in FFmpeg's releases, as far as they lie open to the bytes of a video that Reelabel decodes.

From the records at https://www.cve.org, and for CVE-2026-8461 from https://ffmpeg.org/security.html.
Left out is what a file cannot reach here: encoders, muxers, filters, hardware decoding, network
protocols, playlists (which are refused), and what concerns builds other than 64-bit little-endian
ones. Whoever adds rows moves `CHECKED` on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date

Release = tuple[int, int, int]

CHECKED = date(2026, 11, 21)
_NAME = re.compile(r"n?(\d+)\.(\d+)(?:\.(\d+))?(?![\d.])")


@dataclass(frozen=True, slots=True)
class Span:
    """Releases that a hole is in: from the first, to before the one that closes it.

    Attributes:
        first: The first release known to have it.
        closed: The release that closes it; None where no record names one.
        last: The last release known to have it, where `closed` is None.
    """

    first: Release
    closed: Release | None = None
    last: Release | None = None

    def holds(self, release: Release) -> bool:
        """Tell whether a release is among them."""
        if self.closed is not None:
            return self.first <= release < self.closed
        return self.first <= release <= (self.last or release)


@dataclass(frozen=True, slots=True)
class Hole:
    """One hole.

    Attributes:
        cve: Its identifier.
        part: FFmpeg's name of the decoder or container that it is in.
        what: What a crafted file does there.
        spans: The releases that have it.
    """

    cve: str
    part: str
    what: str
    spans: tuple[Span, ...]


_SINCE_EVER = (0, 0, 0)
HOLES = (
    Hole(
        "CVE-2026-125244",
        "vvc",
        "writes out of bounds",
        (Span((7, 0, 0), closed=(8, 1, 3)), Span((9, 0, 0), closed=(9, 0, 2))),
    ),
    Hole(
        "CVE-2026-125267",
        "apac",
        "writes out of bounds",
        (Span(_SINCE_EVER, closed=(8, 1, 3)), Span((9, 0, 0), closed=(9, 0, 2))),
    ),
    Hole("CVE-2026-125178", "tdsc", "reads out of bounds", (Span(_SINCE_EVER, last=(9, 0, 2)),)),
    Hole("CVE-2026-125184", "cscd", "shows stale memory", (Span((6, 1, 0), last=(9, 0, 2)),)),
    Hole("CVE-2026-65703", "tdsc", "writes out of bounds", (Span((2, 7, 0), last=(8, 1, 2)),)),
    Hole(
        "CVE-2026-8461",
        "magicyuv",
        "writes out of bounds",
        (Span(_SINCE_EVER, closed=(8, 0, 3)), Span((8, 1, 0), closed=(8, 1, 2))),
    ),
    Hole("CVE-2026-40962", "mov", "writes out of bounds", (Span((4, 1, 0), closed=(8, 1, 0)),)),
)


def parse_release(name: str) -> Release | None:
    """Read a release's name, such as `8.1.2` or `n8.1`; None for a build between releases."""
    found = _NAME.match(name)
    return (int(found[1]), int(found[2]), int(found[3] or 0)) if found else None


def holes_in(release: Release) -> list[Hole]:
    """List the known holes in a release."""
    return [hole for hole in HOLES if any(span.holds(release) for span in hole.spans)]
