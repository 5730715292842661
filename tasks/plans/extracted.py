"""What inference needs to know of a shard's extraction, as a small object beside the plan's files."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from infra.errors import PlanLostError
from reelabel.errors import ObjectMissingError, VideoError
from reelabel.frames.extractor import ExtractedVideo
from reelabel.frames.provenance import FrameProvenance
from reelabel.segment import Segment
from tasks.domain import RunPhase, Shard, View

if TYPE_CHECKING:
    from reelabel.sampling.passes import FramePass
    from reelabel.sources.object_store import ObjectStore


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractedShard:
    """A shard whose frame files stand in the cache, but for the videos that failed.

    Attributes:
        prepared: By what jobs are shown.
        faults: The same: why it has no frame file.
        spent_ms: Milliseconds of this work by part, summed over the videos.
        between_s: When it began and ended, in seconds of Unix time.
    """

    shard: Shard
    prepared: dict[View, ExtractedVideo] = field(repr=False)
    faults: dict[View, VideoError] = field(repr=False)
    spent_ms: dict[RunPhase, float]
    between_s: tuple[float, float]


def write_extracted(objects: ObjectStore, plan_uri: str, extracted: ExtractedShard) -> None:
    """Leave a shard's extraction for whoever infers it; what another worker left is replaced.

    Raises:
        StoreUnavailableError: Nothing was left.
    """
    # By the videos' places in the shard: their URIs are in the plan already, and may be as long as a video.
    place_of = {uri: place for place, uri in enumerate(extracted.shard.video_uris)}
    views = [
        {"video": place_of[view.video_uri], "view": view[1:], **_packed(outcome)}
        for view, outcome in (extracted.prepared | extracted.faults).items()
    ]
    text = json.dumps({"views": views, "spent_ms": extracted.spent_ms, "between_s": extracted.between_s})
    objects.replace(_uri_of(plan_uri, extracted.shard.index), text.encode())


def read_extracted(objects: ObjectStore, plan_uri: str, shard: Shard) -> ExtractedShard:
    """Read how a shard was extracted.

    Raises:
        PlanLostError: It is gone, or another version of Reelabel wrote it; the shard must be extracted once more.
        StoreUnavailableError: The store does not answer.
    """
    uri = _uri_of(plan_uri, shard.index)
    try:
        found = json.loads(objects.read(uri))
    except ObjectMissingError:
        raise PlanLostError(f"{uri} is gone; its shard is extracted once more.") from None
    uris = shard.video_uris
    outcomes = {_view(uris[packed.pop("video")], *packed.pop("view")): packed for packed in found["views"]}
    try:
        prepared = {view: _video(view, **packed) for view, packed in outcomes.items() if "code" not in packed}
    except TypeError:  # a field that one of the two versions does not have
        raise PlanLostError(f"{uri} is of another version; its shard is extracted once more.") from None
    return ExtractedShard(
        shard=shard,
        prepared=prepared,
        faults={view: _fault(**packed) for view, packed in outcomes.items() if "code" in packed},
        spent_ms={RunPhase(name): ms for name, ms in found["spent_ms"].items()},
        between_s=(found["between_s"][0], found["between_s"][1]),
    )


def _view(video_uri: str, shown: FramePass, segment: list[float | None]) -> View:
    return View(video_uri, shown, Segment(*segment))


def _video(view: View, *, provenance: dict[str, Any], **packed: Any) -> ExtractedVideo:  # noqa: ANN401 - JSON
    return ExtractedVideo(uri=view.video_uri, provenance=FrameProvenance(**provenance), **packed)


def _packed(outcome: ExtractedVideo | VideoError) -> dict[str, Any]:
    if isinstance(outcome, VideoError):
        return {"code": outcome.code, "message": outcome.message, "fingerprint": outcome.fingerprint}
    return {name: value for name, value in asdict(outcome).items() if name != "uri"}


def _fault(*, code: str, message: str, fingerprint: str | None) -> VideoError:
    kinds = {kind.code: kind for kind in VideoError.__subclasses__()}
    fault = kinds.get(code, VideoError)(message)
    fault.fingerprint = fingerprint
    return fault


def _uri_of(plan_uri: str, index: int) -> str:
    return f"{plan_uri}/extracted/{index:06}.json"
