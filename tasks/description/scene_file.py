"""What a look into a video for changes of scene has shown, kept beside its frames, so that no later run looks again.

One file has the changes that were found with a threshold; another one the cuts, whatever the threshold, from which
changes with another one follow without decoding.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from reelabel.digest import json_digest
from reelabel.errors import ObjectError, SealError
from reelabel.frames.cache_key import decoder_versions
from reelabel.sources.object_info import unsigned_uri
from tasks.description.scenes.change import SceneChange, SceneChanges
from tasks.description.scenes.cuts import CutCandidate, Cuts
from tasks.frame_cache.sealed_files import SealedFiles

if TYPE_CHECKING:
    from reelabel.segment import Segment
    from reelabel.sources.object_store import ObjectInfo

_VERSION = 1
# Raised by every change of ours by which other changes of scene are found in a video, so that those that were found
# before are looked for again.
_FINDER_VERSION = 3


def finder_version() -> int:
    """Return the version of what finds changes of scene."""
    return _FINDER_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneFiles(SealedFiles):
    """Scene files under the root of the frame cache; one that must not be used counts as missing."""

    def find(self, embeddings_key: str, *, method: str, threshold: float) -> SceneChanges | None:
        """Look up the changes of a video; None if they must be looked for.

        Args:
            embeddings_key: Key of the video's embedding file, which names the video, its version and the segment.
            method: The method.
            threshold: Its threshold.
        """
        key = _key(embeddings_key, method, threshold)
        try:
            return _changes_of(json.loads(bytes(self.read_sealed(key))))
        except (ObjectError, SealError, ValueError, KeyError, TypeError):
            return None

    def write(self, changes: SceneChanges, embeddings_key: str, *, method: str, threshold: float) -> None:
        """Write the changes of a video, in place of a file that must not be used."""
        key = _key(embeddings_key, method, threshold)
        data = json.dumps(asdict(changes)).encode()
        self.replace_sealed(key, data)

    def find_cuts(self, info: ObjectInfo, segment: Segment) -> Cuts | None:
        """Look up the cuts of a segment of a video; None if it must be looked into."""
        key = _cuts_key(info, segment)
        try:
            found = json.loads(bytes(self.read_sealed(key)))
            candidates = tuple(CutCandidate(*each) for each in found["candidates"])
            return Cuts(candidates=candidates, note=str(found["note"]))
        except (ObjectError, SealError, ValueError, KeyError, TypeError):
            return None

    def write_cuts(self, cuts: Cuts, info: ObjectInfo, segment: Segment) -> None:
        """Write the cuts of a segment of a video, in place of a file that must not be used."""
        self.replace_sealed(_cuts_key(info, segment), json.dumps(asdict(cuts)).encode())


def _changes_of(found: dict[str, Any]) -> SceneChanges:
    changes = tuple(SceneChange(**change) for change in found["changes"])
    return SceneChanges(changes=changes, method=str(found["method"]), note=str(found["note"]))


def _key(embeddings_key: str, method: str, threshold: float) -> str:
    facts = {"scenes": finder_version(), "embeddings": embeddings_key, "method": method, "threshold": threshold}
    digest = json_digest(facts)
    return f"v{_VERSION}/{digest[:2]}/{digest}.scenes"


def _cuts_key(info: ObjectInfo, segment: Segment) -> str:
    video = {"uri": unsigned_uri(info.uri), "fingerprint": info.fingerprint, "segment_s": list(segment)}
    digest = json_digest(video | {"cuts": finder_version(), "decoder": decoder_versions()})
    return f"v{_VERSION}/{digest[:2]}/{digest}.scenes"
