"""Measures this machine's rates by extracting a few clips of the manifest."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from reelabel.errors import JobError
from reelabel.frames.cache_key import FrameIdentity
from reelabel.frames.frame_file import write_frames
from reelabel.sampling.options import with_sampler
from reelabel.sampling.registry import DEFAULT_DENSE_SAMPLER, find_sampler
from reelabel.sources.object_info import redact_uri
from reelabel.unexpected import failing_alone
from tasks.domain.passes import sampling_of_pass
from tasks.survey.clips import Tags
from tasks.survey.cost import cost_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reelabel.frames.fetch import VideoReader
    from reelabel.frames.pixels import ExactEncoding
    from reelabel.sampling.options import Sampling
    from tasks.survey.read import SeenClip

MEASURED_CLIPS = 6
_MAX_CLIP_BYTES = 512 * 1024**2


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineRates:
    """This machine's speed of extraction, and the size of frame files."""

    clips: int  # number of measured clips, at least one
    decode_ms_per_frame: float  # milliseconds of a decoding process per frame that `cost_of` counts
    fetch_ms_per_byte: float  # milliseconds of waiting for the store per byte; 0.0 for local files
    bytes_per_frame: float
    processes: int  # number of decoding processes


def measure_rates(
    clips: Sequence[SeenClip],
    reader: VideoReader,
    sampling: Sampling,
    *,
    processes: int,
    encoding: ExactEncoding,
    limit_s: float,
) -> MachineRates | None:
    """Extract a few clips as a run would, for up to `limit_s`, without caching; None if none can be decoded."""
    if find_sampler(sampling.sampler).needs_question:
        sampling = with_sampler(sampling, DEFAULT_DENSE_SAMPLER)  # the same number of frames, wherever they are
    frames = stored = fetched_bytes = cached_bytes = measured = 0
    decode_ms = fetch_ms = 0.0
    deadline_s = time.monotonic() + limit_s
    for each in clips:
        if measured == MEASURED_CLIPS or time.monotonic() > deadline_s:
            break
        if each.seen is None or each.seen.info.size_bytes > _MAX_CLIP_BYTES:
            continue
        shown = sampling_of_pass(sampling, "first")
        try:
            with failing_alone(f"Measuring {redact_uri(each.clip.uri)}"):
                got = reader.fetch(each.seen.info, shown, segment=each.clip.segment).frames
                identity = FrameIdentity(
                    source_uri=each.seen.info.uri,
                    fingerprint=each.seen.info.fingerprint,
                    sampling=sampling_of_pass(sampling, "keyframes" if got.sampler == "keyframes" else "dense"),
                    segment=each.clip.segment,
                )
                data = write_frames(got, identity, encoding="zstd" if encoding == "sparse" else encoding)
                counted = cost_of(replace(each.clip, tags=(Tags(),)), each.seen, sampling).frames
        except JobError:
            continue
        measured += 1
        frames, stored = frames + (counted or got.cost.frames_decoded), stored + len(got.unique)
        decode_ms, fetch_ms = decode_ms + got.cost.decode_ms, fetch_ms + got.cost.fetch_ms
        fetched_bytes, cached_bytes = fetched_bytes + got.cost.bytes_fetched, cached_bytes + len(data)
    if not measured or not frames:
        return None
    return MachineRates(
        clips=measured,
        decode_ms_per_frame=decode_ms / frames,
        fetch_ms_per_byte=fetch_ms / fetched_bytes if fetched_bytes else 0.0,
        bytes_per_frame=cached_bytes / stored,
        processes=processes,
    )
