"""Origin and cost of frames."""

from __future__ import annotations

from dataclasses import dataclass

from tasks.domain.record import Merge, column


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameProvenance:
    """Origin and cost of the frames of one answer. Each field is a column of the results."""

    fingerprint: str = column(Merge.LAST, "Version of the video.", name="source_fingerprint")
    sampler: str = column(Merge.LAST, "The sampler that selected the frames.", default="keyframes")
    decode_method: str = column(Merge.LAST, "How the frames were located: `index`, `seek` or `linear`.", default="")
    decode_note: str = column(
        Merge.LAST,
        (
            "Why a faster method was unavailable, whether the video is cut short, and which cached "
            "files were rewritten; empty if there is nothing to report."
        ),
        default="",
    )
    keyframes_in_file: int = column(Merge.LAST, "Number of keyframes in the video.")
    longest_gap_s: float | None = column(Merge.LAST, "Longest gap without a keyframe; null if unknown.", default=None)
    keyframe_coverage: float | None = column(
        Merge.LAST, "Share of the video that is near a keyframe, 0 to 1; null if unknown.", default=None
    )
    coverage: str = column(
        Merge.LAST, "Why keyframes may not cover the video, as comma-separated codes; empty if they do.", default=""
    )
    chosen_ms: str = column(
        Merge.LAST,
        "Times of the frames in milliseconds, comma-separated, if they were selected by a question; otherwise empty.",
        default="",
    )
    frames_used: int = column(Merge.LAST, "Number of unique frames shown to the model.")
    frames_decoded: int = column(
        Merge.SUM, "Frames output by decoders, now or when the frame file was written.", default=0
    )
    bytes_fetched: int = column(
        Merge.SUM, "Bytes of the video read for the frames; 0 if the frame file was cached.", default=0, bits=64
    )
    fetch_ms: float = column(Merge.SUM, "Time waiting for the store; 0 if the frame file was cached.", default=0.0)
    decode_ms: float = column(
        Merge.SUM, "Time decoding, without `fetch_ms`; 0 if the frame file was cached.", default=0.0
    )
    embed_ms: float = column(
        Merge.SUM,
        "Time of the image-text model, if frames were selected by a question; 0 if they were already embedded.",
        default=0.0,
    )
    cache_write_ms: float = column(
        Merge.SUM, "Time encoding and writing the frame file; 0 if it was cached.", default=0.0
    )
    cache_read_ms: float = column(Merge.SUM, "Time reading the frame file for inference.", default=0.0)
