"""Comparison of a video read in parts, by a cached index, or by several threads, with the whole file."""

from __future__ import annotations

from contextlib import closing
from dataclasses import fields
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.extraction.loaders import FileParts
from reelabel.decode.decoder import LocalDecoder
from reelabel.errors import FallbackRequired, VideoError
from reelabel.extract import Progress, Request, extract, extract_local, extract_ranges
from reelabel.frames.cache import decode_index, encode_index
from reelabel.options import Limits
from reelabel.result import Selection
from reelabel.sampling.options import Sampling
from reelabel.segment import WHOLE, Segment
from reelabel.sources.sparse_file import CachedRange
from reelabel.sources.video_file import open_video_file

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from reelabel.result import Frames

_FIRST, _LATER = Sampling(num_frames=3), Sampling(num_frames=7)
_DENSE = (
    (Sampling(sampler="uniform", num_frames=5), WHOLE),
    (Sampling(sampler="fps", fps=4), Segment(0.4, 1.1)),
    (Sampling(sampler="num_frames", num_frames=3), Segment(0.8, None)),
)
_SHOWN = ("pts", "time_s", "picks", "deviation_s", "starts_s", "fps", "orientation")
# What varies from call to call.
_IGNORED = {"note", "frames_decoded", "decode_ms", "fetch_ms", "bytes_fetched"}
_COMPARED = tuple(each.name for each in fields(Selection) if each.name not in _IGNORED)


def shortcut_faults(path: Path) -> tuple[bool, list[str]]:
    """Compare each shortcut to the keyframes of a file with the file itself.

    Returns:
        Whether the file is read in parts, and the differences.
    """
    whole = (CachedRange(0, path.read_bytes()),)  # known in full, so that small files are read in parts, too
    try:
        got, index = extract_ranges(FileParts(path), sampling=_FIRST, limits=Limits(), known=whole)
    except (FallbackRequired, VideoError):
        return False, []
    faults = [f"in parts: {fault}" for fault in _differences(got, _locally(path, _FIRST))]
    header = decode_index(encode_index(index))
    for threads in (1, 2):
        later, _ = extract_ranges(FileParts(path), sampling=_LATER, limits=Limits(), threads=threads, known=header)
        faults += [f"by its header: {fault}" for fault in _differences(later, _locally(path, _LATER))]
    return True, faults + [f"threads: {fault}" for fault in _differences(_locally(path, _LATER, threads=2), later)]


def dense_faults(path: Path) -> tuple[int, list[str]]:
    """Compare frames between keyframes that are read in parts with a linear decode of the whole file.

    Returns:
        How many samplings could be served in parts, and the differences.
    """
    served, faults = 0, []
    whole = (CachedRange(0, path.read_bytes()),)
    for sampling, segment in _DENSE:
        try:
            got, _ = extract_ranges(FileParts(path), sampling=sampling, limits=Limits(), known=whole, segment=segment)
        except (FallbackRequired, VideoError):
            continue
        served += 1
        linear = extract_linearly(path, Request(sampling=sampling, segment=segment))
        different = _differences(got, linear, _SHOWN)
        faults += [f"{sampling.sampler} in parts: {name}" for name in different]
    return served, faults


def extract_linearly(path: Path, request: Request) -> Frames:
    """Extract frames by decoding all of a file."""
    with open_video_file(path) as file, closing(LocalDecoder(file, request.limits)) as decoder:
        return extract(decoder, request, Progress(ways=("decode",)))


def _locally(path: Path, sampling: Sampling, *, threads: int = 1) -> Frames:
    return extract_local(path, sampling=sampling, limits=Limits(), threads=threads)


def _differences(got: Frames, whole: Frames, names: Sequence[str] = _COMPARED) -> list[str]:
    known = got.selection, whole.selection
    different = [name for name in names if not np.array_equal(*(getattr(each, name) for each in known))]
    return different if np.array_equal(got.unique, whole.unique) else ["pixels", *different]
