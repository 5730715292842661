"""Several videos and images that one job shows, and what its row says of all of them."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Literal, NamedTuple

from reelabel.record import merge_records
from reelabel.sources.object_info import redact_uri

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from reelabel.frames.provenance import FrameProvenance

MediumKind = Literal["video", "image"]
# Most videos and images of a job: all of them are held in memory at once, and take their tokens of one prompt.
MAX_MEDIA = 16
_SHOWN_NOTES = 3


class Medium(NamedTuple):
    """A video or an image that a job shows."""

    kind: MediumKind
    uri: str


class MediaCounts(NamedTuple):
    """How many videos and images one question shows at most."""

    videos: int = 1
    images: int = 0

    @classmethod
    def of(cls, media: Iterable[Medium]) -> MediaCounts:
        """Count the media of one job."""
        counts = Counter(medium.kind for medium in media)
        return cls(counts["video"], counts["image"])

    def larger(self, other: MediaCounts) -> MediaCounts:
        """Return the larger number of each kind."""
        return MediaCounts(max(self.videos, other.videos), max(self.images, other.images))

    @property
    def are_several(self) -> bool:
        """Whether a question may show more than one video."""
        return self != ONE_VIDEO

    def __str__(self) -> str:
        """Return a phrase such as `2 videos and 1 image`."""
        named = ((self.videos, "video"), (self.images, "image"))
        return " and ".join(f"{count} {name}{'' if count == 1 else 's'}" for count, name in named if count)


ONE_VIDEO = MediaCounts()


def join_fingerprints(fingerprints: Sequence[str | None]) -> str | None:
    """Return one fingerprint for all media of a job, as its row has it; None if one of them is unknown."""
    known = [each for each in fingerprints if each is not None]
    if len(known) < len(fingerprints):
        return None
    return known[0] if len(known) == 1 else json.dumps(known)


def split_fingerprint(fingerprint: str | None, count: int) -> list[str | None]:
    """Return the fingerprint of each of a job's media, as joined by `join_fingerprints`; None for unknown ones."""
    if fingerprint is None or count == 1:
        return [fingerprint] * count
    try:
        found = json.loads(fingerprint)
    except ValueError:
        return [None] * count
    return found if isinstance(found, list) and len(found) == count else [None] * count


def merge_provenance(parts: Sequence[FrameProvenance]) -> FrameProvenance:
    """Sum what several sets of frames cost, and take the worst of how well keyframes cover them."""
    if len(parts) == 1:
        return parts[0]
    gaps_s = [each.longest_gap_s for each in parts if each.longest_gap_s is not None]
    covers = [each.keyframe_coverage for each in parts if each.keyframe_coverage is not None]
    reasons = dict.fromkeys(reason for each in parts for reason in each.coverage.split(",") if reason)
    notes = list(dict.fromkeys(each.decode_note for each in parts if each.decode_note))
    return replace(
        reduce(merge_records, parts),
        sampler=Counter(each.sampler for each in parts).most_common(1)[0][0],
        decode_method=Counter(each.decode_method for each in parts).most_common(1)[0][0],
        decode_note="; ".join(notes[:_SHOWN_NOTES]),
        longest_gap_s=max(gaps_s, default=None),
        keyframe_coverage=min(covers, default=None),
        coverage=",".join(reasons),
        chosen_ms="",  # each chunk's row has its own
        frames_used=sum(each.frames_used for each in parts),
    )


def merge_media(media: Sequence[Medium], parts: Sequence[FrameProvenance]) -> FrameProvenance:
    """Return the provenance of a job of several videos and images; keyframes are those of the videos alone."""
    noted = [
        replace(part, decode_note=f"{redact_uri(medium.uri)}: {part.decode_note}" if part.decode_note else "")
        for medium, part in zip(media, parts, strict=True)
    ]
    videos = [part for medium, part in zip(media, noted, strict=True) if medium.kind == "video"]
    of_videos, samplers = merge_provenance(videos), {part.sampler for part in videos}
    return replace(
        merge_provenance(noted),
        fingerprint=join_fingerprints([part.fingerprint for part in parts]) or "",
        # Keyframes, if they are shown of one of the videos: a dense sampler may still show more.
        sampler="keyframes" if "keyframes" in samplers else of_videos.sampler,
        decode_method=of_videos.decode_method,
        keyframes_in_file=sum(part.keyframes_in_file for part in videos),
        longest_gap_s=of_videos.longest_gap_s,
        keyframe_coverage=of_videos.keyframe_coverage,
        coverage=of_videos.coverage,
    )
