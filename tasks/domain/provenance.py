"""Origin and cost of frames."""

from __future__ import annotations

from dataclasses import dataclass, field

from tasks.domain.record import Merge, column


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameProvenance:
    """Origin and cost of the frames of one answer. Durations are in milliseconds.

    Each field is a column of the results table. The metadata gives the column's name, and how the row of an escalated
    job merges the values of both answers.

    Attributes:
        fingerprint: Version of the video.
        sampler: The sampler that selected the frames.
        decode_method: How the frames were located: `index`, `seek` or `linear`.
        decode_note: Why a faster method was unavailable, whether the video is truncated, and which cached files were
            rewritten; empty if there is nothing to report.
        keyframes_in_file: Number of keyframes in the video.
        longest_gap_s: Longest gap without a keyframe; None if unknown.
        keyframe_coverage: Share of the video that is near a keyframe, 0 to 1; None if unknown.
        coverage: Why keyframes may not cover the video, as comma-separated codes; empty if they do.
        chosen_ms: Times of the frames in milliseconds, comma-separated, if they were selected by a question; otherwise
            empty.
        frames_used: Number of unique frames shown to the model.
        frames_decoded: Frames output by decoders, now or when the frame file was written.
        bytes_fetched: Bytes of the video read for the frames; 0 if the frame file was cached.
        fetch_ms: Time waiting for the store; 0 if the frame file was cached.
        decode_ms: Time decoding, without `fetch_ms`; 0 if the frame file was cached.
        embed_ms: Time of the image-text model, if frames were selected by a question; 0 if they were already embedded.
        cache_write_ms: Time encoding and writing the frame file; 0 if it was cached.
        cache_read_ms: Time reading the frame file for inference.
    """

    fingerprint: str = field(metadata=column(Merge.LAST, name="source_fingerprint"))
    sampler: str = field(default="keyframes", metadata=column(Merge.LAST))
    decode_method: str = field(default="", metadata=column(Merge.LAST))
    decode_note: str = field(default="", metadata=column(Merge.LAST))
    keyframes_in_file: int = field(metadata=column(Merge.LAST))
    longest_gap_s: float | None = field(default=None, metadata=column(Merge.LAST))
    keyframe_coverage: float | None = field(default=None, metadata=column(Merge.LAST))
    coverage: str = field(default="", metadata=column(Merge.LAST))
    chosen_ms: str = field(default="", metadata=column(Merge.LAST))
    frames_used: int = field(metadata=column(Merge.LAST))
    frames_decoded: int = field(default=0, metadata=column(Merge.SUM))
    bytes_fetched: int = field(default=0, metadata=column(Merge.SUM, bits=64))
    fetch_ms: float = field(default=0.0, metadata=column(Merge.SUM))
    decode_ms: float = field(default=0.0, metadata=column(Merge.SUM))
    embed_ms: float = field(default=0.0, metadata=column(Merge.SUM))
    cache_write_ms: float = field(default=0.0, metadata=column(Merge.SUM))
    cache_read_ms: float = field(default=0.0, metadata=column(Merge.SUM))
