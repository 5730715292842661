"""What a look into a video for changes of scene has shown, kept beside its frames, so that no later run looks again.

One file has the changes that a method has found with a threshold; another one what a method by the index has looked at,
from which changes with another threshold follow without decoding.
"""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from reelabel.digest import json_digest
from reelabel.errors import ObjectError, SealError
from reelabel.frames.cache_key import decoder_versions
from reelabel.packet_list import PacketList
from reelabel.seal import NO_KEY
from tasks.description.scenes.change import SceneChange, SceneChanges, Thumbnails
from tasks.description.scenes.footage import Looked

if TYPE_CHECKING:
    from reelabel.seal import Seal
    from reelabel.segment import Segment
    from reelabel.sources.object_store import ObjectInfo, ObjectStore

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

    def find_looked(self, info: ObjectInfo, segment: Segment) -> Looked:
        """Look up what of a segment of a video was looked at; nothing if it must be looked at."""
        key = _looked_key(info, segment)
        try:
            data = self.seal.unwrap(key, self.objects.read(self._uri(key)))
            with np.load(io.BytesIO(data), allow_pickle=False) as found:
                facts = json.loads(bytes(found["facts"]))
                packets = PacketList(
                    times_ms=found["times_ms"],
                    sizes_bytes=found["sizes_bytes"],
                    is_keyframe=found["is_keyframe"],
                    **facts["packets"],
                )
                thumbnails = Thumbnails(images=found["images"], times_ms=found["shown_ms"])
        except (ObjectError, SealError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
            return Looked()
        windows = tuple((float(start), float(end)) for start, end in facts["windows"])
        return Looked(packets=packets, windows=windows, thumbnails=thumbnails)

    def write_looked(self, looked: Looked, info: ObjectInfo, segment: Segment) -> None:
        """Write what of a segment was looked at, if that was all that a method by the index looks at."""
        packets, thumbnails = looked.packets, looked.thumbnails
        if packets is None or thumbnails is None:
            return
        named = {"fps": packets.fps, "duration_s": packets.duration_s, "listed": packets.listed}
        facts = json.dumps({"packets": named, "windows": looked.windows}).encode()
        buffer, key = io.BytesIO(), _looked_key(info, segment)
        np.savez(
            buffer,
            facts=np.frombuffer(facts, np.uint8),
            times_ms=packets.times_ms,
            sizes_bytes=packets.sizes_bytes,
            is_keyframe=packets.is_keyframe,
            images=thumbnails.images,
            shown_ms=thumbnails.times_ms,
        )
        self.objects.replace(self._uri(key), self.seal.wrap(key, buffer.getvalue()))

    def _uri(self, key: str) -> str:
        return f"{self.root_uri.rstrip('/')}/{key}"


def _key(embeddings_key: str, method: str, threshold: float) -> str:
    facts = {"scenes": _VERSION, "embeddings": embeddings_key, "method": method, "threshold": threshold}
    digest = json_digest(facts)
    return f"v{_VERSION}/{digest[:2]}/{digest}.index"


def _looked_key(info: ObjectInfo, segment: Segment) -> str:
    video = {"uri": info.uri, "fingerprint": info.fingerprint, "segment_s": list(segment)}
    digest = json_digest(video | {"looked": _VERSION, "decoder": decoder_versions()})
    return f"v{_VERSION}/{digest[:2]}/{digest}.index"
