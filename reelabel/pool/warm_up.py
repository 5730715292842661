"""The first decode of a decoding process, of a clip of its own, which leaves nothing to be imported later."""

from __future__ import annotations

import base64
import os
import pickle
import zlib
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING

from reelabel.errors import ConfigurationError
from reelabel.extract import extract_file, extract_ranges
from reelabel.limits import Limits
from reelabel.pool.messages import Request, Started, encode_answer, parse_answer
from reelabel.pool.transfer import pack_frames, unpack_frames
from reelabel.read_index import read_index
from reelabel.sampling.options import Sampling
from reelabel.sampling.properties import VideoProperties
from reelabel.sampling.registry import choose_indices, dense_samplers
from reelabel.segment import WHOLE
from reelabel.sources.sparse_file import CachedRange, SparseFile
from reelabel.sources.video_file import VideoFile

if TYPE_CHECKING:
    from reelabel.strategies.keyframe_table import SavedIndex

# H.264 in MP4: 12 grey frames of 32x32 pixels, every fourth a keyframe.
_CLIP = (
    "eNqtVM1r1EAUf0nYJV1bUVnBQ5UI2w+USncRj7KtFlZdoR4qIiImO4kbN9OEZDZSEazioYpHQSh+gBfRoxf/AfXoSSiIB+3Joye9iOt7SbY7Xd"
    "tSwWFe3pv38XsfmQQADEcsBG7kcwAViCNVzLhR5sHRMgDoTmjbAMocZ6bA85C9dFd7bi3C7QdP2l9QcXxqeVxrvZ8B9VwVHs7CSBEGtnmwbv6+"
    "hQh55emMIi6gNDq1XCcsrTg4W66+24itpjE77aU7ULl3H9T86/bKIhVGdVwbQ9jVftghgiWTnmWkJuDT6DjoO06tXP7PTYxto4nrzxZ+AWivuO"
    "/HGOLxuMlg3dK+AeQ+gwK0e0tZ79V/rsKWS8X9UYRmC+VLopXk1P5Gw7ywdZ4N8xoZAZRsJiLkw7YXiV4E4epZrFrnzDUpgrP+3gntCsy9TQ4T"
    "TeaFXUvsMlv2PI9nv2bOM88mH+Und+cdFIoxT0DlMksstQ2z0HakNgbboWeksvImEpaH8otIREzyeURfxCajoKYNqCGvberRv/Z1OtQaop5Qzl"
    "YLna+w9yryH2em6YWo9DAOlE4HCuSaH7THdL+LlgizWea/d2Eikcx5rZVkvtgilt/Va5kthzRAg230YgqpTc/id8nFq/+oV6TcDammrK6En0Tb"
    "DWkMpN+NNJ3VcghpT6YrZFy2H6Y5RKLhS/iTSFabCbpLF7mdcFoH5XuDdy00g8CT38GEm17OkZfCJ8D9+IMzuw3Vzdg5VjlSxj1Z+QMrbrqw"
)


@cache
def warm_up() -> None:
    """Decode in each way, and send each kind of message to nobody; once is enough for all forked processes."""
    clip = zlib.decompress(base64.b64decode(_CLIP))
    descriptor = os.memfd_create("clip", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, clip)
        for sampler in ("keyframes", "uniform", "auto"):
            _decode(clip, descriptor, Sampling(sampler=sampler, num_frames=4, drop_similar=0.999))
        read_index(VideoFile(descriptor, len(clip), ".mp4"), Limits(), lists="keyframes")
        read_index(SparseFile(_Held(clip)), Limits(), lists="keyframes")
        read_index(VideoFile(descriptor, len(clip), ".mp4"), Limits(), lists="frames")
    finally:
        os.close(descriptor)
    parse_answer(encode_answer(Started()))
    with suppress(ConfigurationError):  # the pool raises it for requests that need it
        _choose_in_each_way()


def _choose_in_each_way() -> None:
    """Let each sampler choose once: NumPy imports some of its parts only when they are needed."""
    facts = VideoProperties(total_frames=96, fps=12.0, duration_s=8.0, width_px=32, height_px=32)
    for name in dense_samplers():
        with suppress(Exception):  # of another package: fails the videos that need it
            choose_indices(Sampling(sampler=name), facts)


def _decode(clip: bytes, descriptor: int, sampling: Sampling) -> None:
    limits = Limits()
    request = Request(size_bytes=len(clip), suffix=".mp4", sampling=sampling, limits=limits, segment=WHOLE, threads=1)
    request = pickle.loads(pickle.dumps(request))  # noqa: S301 - our own
    file = VideoFile(descriptor, len(clip), request.suffix)
    got = extract_file(file, sampling=request.sampling, limits=limits)
    index: SavedIndex = ()
    if sampling.sampler == "keyframes":
        extract_file(file, sampling=sampling, limits=limits, native=True, every=True)
        index = (CachedRange(0, clip),)
        for _ in range(2):  # by the container's index, then by the table made of it
            got, index = extract_ranges(
                _Held(clip),
                sampling=sampling,
                limits=limits,
                known=pickle.loads(pickle.dumps(index)),  # noqa: S301
            )
    message, frames = pack_frames(got, index, request)
    try:
        unpack_frames(message, frames, request, max_bytes=len(clip) ** 2)
    finally:
        os.close(frames)


class _Held:
    """A clip of which all is known."""

    max_wait_s = 0.0

    def __init__(self, clip: bytes) -> None:
        self._clip = clip
        self.size_bytes = len(clip)

    def read(self, start: int, size: int) -> bytes:
        """Read a range."""
        return self._clip[start : start + size]
