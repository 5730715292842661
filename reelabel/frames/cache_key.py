"""Identities of frame files, and their keys in the cache."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import av

from reelabel.digest import json_digest
from reelabel.segment import WHOLE, Segment
from reelabel.sources.object_info import SCHEMA_VERSION, redact_uri, unsigned_uri

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reelabel.sampling.options import Sampling

# Incremented by every code change that gives a video other frames, pixels or times, so that frame files, and all
# files derived from them, are made again.
_FRAMES_VERSION = "7"


def decoder_versions() -> dict[str, str]:
    """Return the versions that determine frames: those of PyAV, of FFmpeg's libraries, and of what we do with them."""
    libraries = {name: ".".join(map(str, numbers)) for name, numbers in av.library_versions.items()}
    return {"av": _version("av"), **libraries, "frames": _FRAMES_VERSION}


# importlib reads a file on each call, which takes longer than hashing the key.
_version = cache(version)


@dataclass(frozen=True, kw_only=True)
class FrameIdentity:
    """What determines the frames of a frame file; they depend neither on a job nor on a lossless encoding.

    `fingerprint` is the version of the video, and `segment` the part of it that is sampled.
    """

    source_uri: str = field(default="", repr=False)  # may contain a signature, or a whole video
    fingerprint: str = ""
    sampling: Sampling
    segment: Segment = WHOLE

    @cached_property
    def key(self) -> str:
        """The file's key, a path relative to the cache's root: `v6/ab/abcdef....arrow`."""
        digest = json_digest(self._values)
        return f"v{SCHEMA_VERSION}/{digest[:2]}/{digest}.arrow"

    def facts(self) -> dict[str, Any]:
        """Return what the frame file holds of it, as JSON values: no embedded video, and no signed query."""
        return self._values | {"key": self.key, "source_uri": redact_uri(self._values["source_uri"])}

    def differences(self, facts: Mapping[str, Any]) -> list[str]:
        """Return the names of the values in which a frame file's metadata differs from this identity."""
        return [name for name, value in self.facts().items() if facts.get(name) != value]

    @cached_property
    def _values(self) -> dict[str, Any]:
        pillow = {"pillow": _version("pillow")} if self.sampling.jpeg_quality else {}
        return {
            "schema": SCHEMA_VERSION,
            "source_uri": unsigned_uri(self.source_uri),
            "fingerprint": self.fingerprint,
            "segment_s": list(self.segment),
            "sampling": self.sampling.to_dict(),
            "decoder": decoder_versions() | pillow,
        }
