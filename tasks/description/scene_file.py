"""Changes of scene that took a look into the video, kept beside its frames, so that no later run takes it again."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from reelabel.digest import json_digest
from reelabel.errors import ObjectError, SealError
from reelabel.seal import NO_KEY
from tasks.description.scenes.change import SceneChange, SceneChanges

if TYPE_CHECKING:
    from reelabel.seal import Seal
    from reelabel.sources.object_store import ObjectStore

_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneFiles:
    """Scene files under the root of the frame cache; one that must not be used counts as missing.

    Attributes:
        objects: The object store.
        root_uri: The root of the frame cache.
        seal: Seals the files.
    """

    objects: ObjectStore
    root_uri: str
    seal: Seal = NO_KEY

    def find(self, embeddings_key: str, *, method: str, threshold: float) -> SceneChanges | None:
        """Look up the changes of a video; None if they must be looked for.

        Args:
            embeddings_key: Key of the video's embedding file, which names the video, its version and the segment.
            method: The method.
            threshold: Its threshold.
        """
        key = _key(embeddings_key, method, threshold)
        try:
            found = json.loads(bytes(self.seal.unwrap(key, self.objects.read(self._uri(key)))))
            changes = tuple(SceneChange(**change) for change in found["changes"])
            return SceneChanges(changes=changes, method=str(found["method"]), note=str(found["note"]))
        except (ObjectError, SealError, ValueError, KeyError, TypeError):
            return None

    def write(self, changes: SceneChanges, embeddings_key: str, *, method: str, threshold: float) -> None:
        """Write the changes of a video, in place of a file that must not be used."""
        key = _key(embeddings_key, method, threshold)
        data = json.dumps(asdict(changes)).encode()
        self.objects.replace(self._uri(key), self.seal.wrap(key, data))

    def _uri(self, key: str) -> str:
        return f"{self.root_uri.rstrip('/')}/{key}"


def _key(embeddings_key: str, method: str, threshold: float) -> str:
    facts = {"scenes": _VERSION, "embeddings": embeddings_key, "method": method, "threshold": threshold}
    digest = json_digest(facts)
    return f"v{_VERSION}/{digest[:2]}/{digest}.index"
