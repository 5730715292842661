"""Decoders for single packets, configured from a container's codec parameters; and how many the memory suffices for."""

from __future__ import annotations

import resource
from dataclasses import dataclass
from typing import TYPE_CHECKING

import av

from reelabel.containers.stream_properties import decoder_limit_options

if TYPE_CHECKING:
    from av.video.codeccontext import VideoCodecContext

    from reelabel.limits import Limits

# For these codecs, a keyframe's packet and `CodecParameters` determine the frame. Other decoders, such as MPEG-4's,
# also depend on earlier packets.
_SELF_CONTAINED = frozenset({"h264", "hevc", "vp8", "vp9", "av1"})
_STRICT_OPTIONS = {"err_detect": "explode"}
_THREAD_BYTES = 128 * 1024**2  # a stack, and what the allocator reserves of the address space for a thread
_HELD_FRAMES = 20  # that a decoder may refer to, decode and hand over
_PIXEL_BYTES = 3  # of most formats at most
_SHARE = 2  # the other half is for the frames that are kept, the file and the interpreter


@dataclass(frozen=True, slots=True, kw_only=True)
class CodecParameters:
    """The parameters a decoder needs before its first packet, with FFmpeg's names and values."""

    name: str
    extradata: bytes
    tag: str
    width: int
    height: int
    pix_fmt: str | None
    bits_per_coded_sample: int
    color_range: int
    color_primaries: int
    color_trc: int
    colorspace: int
    field_order: int

    @classmethod
    def of(cls, codec: VideoCodecContext) -> CodecParameters | None:
        """Copy the parameters of a codec context; None if they do not suffice to decode a keyframe's packet."""
        if codec.codec.canonical_name not in _SELF_CONTAINED:
            return None
        return cls(
            name=codec.codec.name,
            extradata=codec.extradata or b"",
            tag=codec.codec_tag,
            width=codec.width,
            height=codec.height,
            pix_fmt=codec.pix_fmt,
            bits_per_coded_sample=codec.bits_per_coded_sample,
            color_range=int(codec.color_range),
            color_primaries=int(codec.color_primaries),
            color_trc=int(codec.color_trc),
            colorspace=int(codec.colorspace),
            field_order=int(codec.field_order),
        )

    def open(self, limits: Limits) -> VideoCodecContext:
        """Create a decoder that fails on damage, as `open_video(..., strictly=True)` does."""
        codec: VideoCodecContext = av.CodecContext.create(self.name, "r")  # type: ignore[assignment]
        codec.extradata = self.extradata or None
        codec.codec_tag = self.tag
        codec.width, codec.height = self.width, self.height
        if self.pix_fmt is not None:
            codec.pix_fmt = self.pix_fmt
        codec.bits_per_coded_sample = self.bits_per_coded_sample
        codec.color_range, codec.colorspace = self.color_range, self.colorspace
        codec.color_primaries, codec.color_trc = self.color_primaries, self.color_trc
        codec.field_order = self.field_order
        codec.thread_type, codec.thread_count = "NONE", 1
        codec.options = decoder_limit_options(limits) | _STRICT_OPTIONS
        return codec


def threads_that_fit(wanted: int, codec: VideoCodecContext | CodecParameters) -> int:
    """Return how many of the wanted threads half of the process's address space suffices for, at least one."""
    limit_bytes, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit_bytes == resource.RLIM_INFINITY:
        return wanted
    needed_bytes = _THREAD_BYTES + _HELD_FRAMES * _PIXEL_BYTES * codec.width * codec.height
    return max(1, min(wanted, limit_bytes // _SHARE // needed_bytes))
