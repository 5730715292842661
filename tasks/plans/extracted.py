"""The outcome of a shard's extraction, as sealed JSON next to the plan's files, for inference on another machine."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from infra.errors import PlanForeignError, PlanLostError
from reelabel.errors import (
    ForeignSealError,
    FrameFileError,
    InternalError,
    JobError,
    ObjectMissingError,
    SealError,
    VideoError,
)
from reelabel.frames.cache_key import FrameIdentity
from reelabel.segment import Segment
from tasks.domain import RunPhase, Shard, View
from tasks.domain.chunks import CutVideo
from tasks.domain.passes import sampling_of_pass, sampling_shown
from tasks.domain.provenance import FrameProvenance
from tasks.frame_cache.extractor import ExtractedVideo

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reelabel.sampling.options import Sampling
    from reelabel.seal import Seal
    from reelabel.sources.object_store import ObjectStore


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractedShard:
    """A shard whose frame files are in the cache, except those of videos that failed.

    Attributes:
        spent_ms: Milliseconds by phase, summed over the videos.
        between_s: Start and end, as Unix time in seconds.
        cut_videos: The videos whose jobs were cut into chunks, by URI.
    """

    shard: Shard
    outcomes: dict[View, ExtractedVideo | JobError] = field(repr=False)
    spent_ms: dict[RunPhase, float]
    between_s: tuple[float, float]
    cut_videos: Mapping[str, CutVideo] = field(default_factory=dict, repr=False)


def write_extracted(objects: ObjectStore, plan_uri: str, extracted: ExtractedShard, *, seal: Seal) -> None:
    """Store the outcome of a shard's extraction, replacing that of any other worker."""
    # Positions in the shard instead of URIs, which the plan has: a data: URI holds a whole video.
    index_of = {uri: index for index, uri in enumerate(extracted.shard.video_uris)}
    views = [
        {"video": index_of[view.video_uri], "view": view[1:], **_packed(outcome)}
        for view, outcome in extracted.outcomes.items()
    ]
    cut = [[index_of[uri], *video] for uri, video in extracted.cut_videos.items()]
    found = {"views": views, "spent_ms": extracted.spent_ms, "between_s": extracted.between_s, "cut_videos": cut}
    uri = _uri_of(plan_uri, extracted.shard.index)
    objects.replace(uri, seal.wrap(uri, json.dumps(found).encode()))


def read_extracted(
    objects: ObjectStore, plan_uri: str, shard: Shard, *, sampling: Sampling, seal: Seal
) -> ExtractedShard:
    """Read the outcome of a shard's extraction.

    Raises:
        PlanLostError: It is missing, was altered, or was written by another version; extract the shard again.
        PlanForeignError: It was signed with another key.
    """
    uri = _uri_of(plan_uri, shard.index)
    try:
        found = json.loads(bytes(seal.unwrap(uri, objects.read(uri))))
    except ObjectMissingError:
        raise PlanLostError(f"{uri} is missing; its shard will be extracted again.") from None
    except ForeignSealError:
        raise PlanForeignError(
            f"{uri} was signed with another store.mac_key, or without one; set the same key on all machines."
        ) from None
    except SealError as error:
        raise PlanLostError(f"{uri} is not used: {error.message} Its shard will be extracted again.") from None
    try:
        return _unpacked(found, shard, sampling)
    except (LookupError, TypeError, ValueError):  # one of the two versions lacks a field, or a phase
        raise PlanLostError(
            f"{uri} was written by another version of Reelabel; its shard will be extracted again."
        ) from None


def _unpacked(found: dict[str, Any], shard: Shard, sampling: Sampling) -> ExtractedShard:
    uris = shard.video_uris
    views = {}
    for packed in found["views"]:
        uri, (shown, segment, texts) = uris[packed.pop("video")], packed.pop("view")
        views[View(uri, shown, Segment(*segment), tuple(texts))] = packed
    return ExtractedShard(
        shard=shard,
        outcomes={view: _outcome(view, sampling, **packed) for view, packed in views.items()},
        spent_ms={RunPhase(name): ms for name, ms in found["spent_ms"].items()},
        between_s=tuple(found["between_s"]),
        cut_videos={uris[at]: CutVideo(*video) for at, *video in found["cut_videos"]},
    )


def _outcome(view: View, sampling: Sampling, **packed: Any) -> ExtractedVideo | JobError:  # noqa: ANN401 - JSON
    if "code" in packed:
        return _fault(**packed)
    provenance = FrameProvenance(**packed.pop("provenance", {}))
    identity = FrameIdentity(
        source_uri=view.video_uri,
        fingerprint=provenance.fingerprint,
        sampling=sampling_shown(
            sampling_of_pass(sampling, view.shown), sampler=provenance.sampler, chosen_ms=provenance.chosen_ms
        ),
        segment=view.segment,
    )
    return ExtractedVideo(identity=identity, provenance=provenance, **packed)


def _packed(outcome: ExtractedVideo | JobError) -> dict[str, Any]:
    if isinstance(outcome, JobError):
        return {"code": outcome.code, "message": outcome.message, "fingerprint": outcome.fingerprint}
    packed = {each.name: getattr(outcome, each.name) for each in fields(outcome)}
    del packed["identity"]  # follows from the view, the spec and the provenance
    return packed | {"provenance": asdict(outcome.provenance)}


def _fault(*, code: str, message: str, fingerprint: str | None) -> JobError:
    kinds: list[type[JobError]] = [*VideoError.__subclasses__(), FrameFileError, InternalError]
    fault = next((kind for kind in kinds if kind.code == code), VideoError)(message)
    fault.fingerprint = fingerprint
    return fault


def _uri_of(plan_uri: str, index: int) -> str:
    return f"{plan_uri}/extracted/{index:06}.json"
