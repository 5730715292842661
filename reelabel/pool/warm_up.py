"""The first decode of a decoding process, of a built-in clip, so that nothing needs to be imported later."""

from __future__ import annotations

import base64
import os
import pickle
import zlib
from functools import cache

import numpy as np

from reelabel.decode.canvas import Decoded
from reelabel.decode.decoder import LocalDecoder, Way
from reelabel.decode.render import View
from reelabel.index import VideoIndex
from reelabel.options import Limits
from reelabel.pool.messages import Call, Failed, Open, describe_failure
from reelabel.pool.packing import pack, unpack
from reelabel.segment import WHOLE, Segment
from reelabel.sources.sparse_file import CachedRange, SparseFile
from reelabel.sources.video_file import VideoFile

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
    """Decode in each way, and pack each kind of message; once is enough for all forked processes."""
    clip = zlib.decompress(base64.b64decode(_CLIP))
    descriptor = os.memfd_create("clip", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, clip)
        opening = Open(size_bytes=len(clip), suffix=".mp4", limits=Limits(), threads=1)
        pickle.loads(pickle.dumps((opening, Call("decode", (np.zeros(1, np.int64), View(), WHOLE), {}))))  # noqa: S301
        ways: tuple[Way, ...] = ("container", "packets", "announced", "decode")
        local = LocalDecoder(VideoFile(descriptor, len(clip), ".mp4"), Limits())
        for way in ways:
            _decode(local, way, keyframes=way == "container")
        local.list_announced()
        local.read_header("frames", of_any_size=True)
        local.list_keyframes()
        local.close()
        remote = LocalDecoder(SparseFile(_BytesSource(clip), (CachedRange(0, clip),)), Limits())
        _decode(remote, "container", keyframes=True)
        pickle.loads(pickle.dumps(remote.known))  # noqa: S301
        _decode(remote, "container", keyframes=False)
        remote.close()
    finally:
        os.close(descriptor)
    data, _ = pack(describe_failure(ValueError("nothing"), frames_decoded=0))
    unpack([Failed], data, None, max_bytes=0)


def _decode(decoder: LocalDecoder, way: Way, *, keyframes: bool) -> None:
    index = decoder.list_frames(way, "keyframes" if keyframes else "frames", Segment(0.0, 0.5))
    decoded = decoder.decode(np.arange(2), View(max_pixels=784, size_multiple_px=28))
    for message in (index, decoded):
        data, arrays = pack(message)
        assert arrays is not None
        try:
            unpack([VideoIndex, Decoded], data, arrays, max_bytes=2**24)
        finally:
            os.close(arrays)


class _BytesSource:
    max_wait_s = 0.0

    def __init__(self, clip: bytes) -> None:
        self._clip = clip
        self.size_bytes = len(clip)

    def read(self, start: int, size: int) -> bytes:
        return self._clip[start : start + size]
