"""Open videos, demux packets and decode frames."""

from __future__ import annotations

import errno
import re
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NoReturn

import av
import av.error
from av.stream import Disposition

from reelabel.containers.stream_properties import (
    CLOCK_TICKS,
    WRAPPING,
    check_declared_size,
    check_duration,
    check_frame_size,
    decoder_limit_options,
    stated_duration_s,
)
from reelabel.errors import (
    FallbackRequired,
    NoVideoStreamError,
    VideoEmptyError,
    VideoTooLargeError,
    VideoUnreadableError,
)
from reelabel.sources.video_file import Seekable, VideoFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from av.container import InputContainer
    from av.packet import Packet
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

    from reelabel.options import Limits
    from reelabel.output_order import ClockReader
    from reelabel.sources.sparse_file import SparseFile

# FFmpeg's names of the formats that are accepted. Each is one file: playlists, and formats such as MLV or VobSub, would
# read other files in the video's name. Text formats are missing, as they accept any text as a video.
_FORMATS = ",".join(
    (
        *("mov", "matroska", "avi", "flv", "live_flv", "kux", "mpegts", "mpeg", "ogg", "asf", "asf_o", "mxf", "rm"),
        *("ivf", "nut", "nsv", "nuv", "wtv", "gxf", "lxf", "ty", "pva", "dhav", "viv", "vivo", "swf", "film_cpk"),
        *("h261", "h263", "h264", "hevc", "vvc", "evc", "av1", "obu", "m4v", "mpegvideo", "mjpeg", "mjpeg_2000"),
        *("vc1", "vc1test", "cavsvideo", "avs2", "avs3", "dirac", "dnxhd", "dv", "apv", "yuv4mpegpipe"),
        *("gif", "apng", "amv", "flic", "bink", "smk", "roq"),
        # Still images, and sound without a picture, whose errors name them.
        *("jpeg_pipe", "png_pipe", "gif_pipe", "webp_pipe", "bmp_pipe", "tiff_pipe", "jpegxl_pipe", "avif"),
        *("mp3", "aac", "wav", "w64", "flac", "aiff", "caf", "ac3", "eac3", "amr", "au", "wv", "ape", "tta"),
    )
)
# FFmpeg's own size for files. It reads on instead of seeking if the target is less than a buffer plus 32 KiB ahead, so
# remote files have a smaller one: their ranges are to be few and small.
_FILE_BUFFER_BYTES, _RANGES_BUFFER_BYTES = 32 * 1024, 8 * 1024
_HEAD_BYTES = 1024
_WEBP_ANIMATION = 0x02
_OTHERS = {
    re.compile(rb"#EXTM3U|ffconcat version|<.*<MPD", re.DOTALL): "a playlist; name the video file itself",
    re.compile(rb"(?=<).*<(?:!doctype\s+html|html)\b", re.DOTALL | re.IGNORECASE): (
        "a web page, not a video; check the address, and whether it needs a login"
    ),
    re.compile(rb"\x1f\x8b\x08"): "compressed with gzip; store it, and have its server send it, as it is",
    re.compile(rb".{4}(?:styp|moof|sidx)|\x1f\x43\xb6\x75", re.DOTALL): (
        "a segment of a DASH or HLS stream without its initialisation segment; join them into one file"
    ),
}
SILENT_CONCEALERS = frozenset({"ffv1"})
_MP4 = "mov,mp4,m4a,3gp,3g2,mj2"
_FOR_SOME = Disposition.hearing_impaired | Disposition.visual_impaired  # such as with a sign language interpreter
_QUICK_OPTIONS = {"skip_frame": "all", "probesize": "32", "max_ts_probe": "0", "fpsprobesize": "0"}


@contextmanager
def open_video(
    source: VideoFile | SparseFile, limits: Limits, *, quickly: bool = False, strictly: bool = False
) -> Iterator[tuple[InputContainer, VideoStream]]:
    """Open a file and its video stream, ignoring cover art; of several, the one that FFmpeg's tools show.

    With `quickly`, no frames are decoded to probe the streams, for containers whose header is sufficient. With
    `strictly`, a damaged frame fails, which decoders otherwise conceal with data from earlier ones; FallbackRequired,
    if this one conceals it silently.

    Raises VideoEmptyError, VideoUnreadableError, NoVideoStreamError, and VideoTooLargeError if the file or its frames
    exceed the limits.
    """
    with _open_container(source, limits, _QUICK_OPTIONS if quickly else {}) as container:
        stream = _video_stream(container)
        if container.format.name == "webp_pipe" and _is_animation(source):
            raise VideoUnreadableError("The file is an animated WebP, which FFmpeg cannot decode; convert it to MP4.")
        check_frame_size(stream.codec_context.width, stream.codec_context.height, limits)
        check_duration(stated_duration_s(container, stream), limits)
        # One thread: videos are decoded by concurrent processes, and threads would delay the first frame after a seek.
        stream.codec_context.thread_type = "NONE"
        stream.codec_context.thread_count = 1
        if strictly and stream.codec_context.name in SILENT_CONCEALERS:
            raise FallbackRequired("the decoder conceals damage silently")
        strictness = {"err_detect": "explode"} if strictly else {}
        stream.codec_context.options = decoder_limit_options(limits) | strictness
        try:
            yield container, stream
        except MemoryError:
            # The HEVC decoder also reports a frame over the limit as out of memory.
            check_frame_size(stream.codec_context.width, stream.codec_context.height, limits)
            raise


def check_frame_count(frames: int, limits: Limits) -> None:
    if frames > limits.max_frames:
        raise VideoTooLargeError(f"The video has more than {limits.max_frames:,} frames.")


def decode_all(
    container: InputContainer, stream: VideoStream, limits: Limits, clock: ClockReader | None = None
) -> Iterator[tuple[VideoFrame, bool]]:
    """Decode every frame, continuing after errors as FFmpeg does by default; `clock` reads the packets.

    Yields each frame, and whether the packet whose decoding output it is flagged as a keyframe. Raises
    VideoTooLargeError if there are more than `limits.max_frames`, or a frame exceeds `limits.max_frame_pixels`.
    """
    count = 0
    for packet in _packets_and_flush(container, stream):
        if clock and packet:
            clock.add(packet.pts, is_keyframe=packet.is_keyframe)
        try:
            frames = stream.codec_context.decode(packet)
        except MemoryError:
            raise
        except av.error.FFmpegError:
            check_declared_size(stream.codec_context, packet, limits)
            continue
        count += len(frames)
        check_frame_count(count, limits)
        for frame in frames:
            yield frame, packet is not None and packet.is_keyframe


def read_packets(container: InputContainer, stream: VideoStream) -> Iterator[Packet[VideoStream]]:
    """Demux from the current position, skipping empty packets, which would flush a decoder.

    FFmpeg takes the clock of an MPEG-TS or MPEG-PS that falls below its start for one that has wrapped around. If it
    then leaps ahead by more than half its range, it has been set back.
    """
    wraps, latest = container.format.name in WRAPPING, None
    # At the end, PyAV raises IndexError if streams have appeared during demuxing.
    with suppress(IndexError):
        for packet in container.demux(stream):
            if not packet.size:
                continue
            if wraps and packet.pts is not None:
                if latest is not None and packet.pts - latest > CLOCK_TICKS // 2:
                    packet.pts -= CLOCK_TICKS
                    packet.dts = None if packet.dts is None else packet.dts - CLOCK_TICKS
                latest = packet.pts
            yield packet


def _packets_and_flush(container: InputContainer, stream: VideoStream) -> Iterator[Packet[VideoStream] | None]:
    try:
        yield from read_packets(container, stream)
    except MemoryError:
        raise
    except av.error.FFmpegError:
        pass
    yield None


def _open_container(source: VideoFile | SparseFile, limits: Limits, probing: dict[str, str]) -> InputContainer:
    if source.size_bytes == 0:
        raise VideoEmptyError("The video file is empty; upload it again.")
    if source.size_bytes > limits.max_video_bytes:
        raise VideoTooLargeError(
            f"The video's {source.size_bytes:,} bytes exceed extract.max_video_bytes ({limits.max_video_bytes:,})."
        )
    try:
        return av.open(
            _reopened(source),
            "r",
            options={"format_whitelist": _FORMATS, "protocol_whitelist": "none", **probing},
            metadata_errors="replace",
            buffer_size=_FILE_BUFFER_BYTES if isinstance(source, VideoFile) else _RANGES_BUFFER_BYTES,
            io_open=_refuse_to_open,
        )
    except MemoryError:
        raise
    except (av.error.FFmpegError, OSError, ValueError) as error:
        if known := _known_other(source):
            raise VideoUnreadableError(f"The file is {known}.") from None
        reason = getattr(error, "strerror", None) or error
        raise VideoUnreadableError(
            f"FFmpeg cannot open the video ({reason}); the file may be truncated, or not a video."
        ) from None


class _OpenRanges(Seekable):
    """A remote file for PyAV, with a position of its own, that ends at the first read that fails.

    FFmpeg reads on after a failure. PyAV raises only one exception of those reads, and prints the others.
    """

    def __init__(self, file: SparseFile) -> None:
        self._file = file
        self.size_bytes = file.size_bytes

    def read(self, size: int = -1) -> bytes:
        data = b"" if self._file.failure else self._file.read_at(self._position, size)
        self._position += len(data)
        return data


def _reopened(source: VideoFile | SparseFile) -> VideoFile | _OpenRanges:
    return source.reopen() if isinstance(source, VideoFile) else _OpenRanges(source)


def _refuse_to_open(_url: str, _flags: int, _options: dict[str, str]) -> NoReturn:
    """Answer a demuxer that asks for another file than the video itself."""
    raise PermissionError(errno.EACCES, "the video refers to another file")


def _known_other(source: VideoFile | SparseFile) -> str | None:
    head = _reopened(source).read(_HEAD_BYTES).lstrip(b"\xef\xbb\xbf \r\n\t")
    return next((what for start, what in _OTHERS.items() if start.match(head)), None)


def _is_animation(source: VideoFile | SparseFile) -> bool:
    if not isinstance(source, VideoFile):
        return False  # it will be read whole
    head = source.reopen().read(_HEAD_BYTES)
    return head[12:16] == b"VP8X" and bool(int.from_bytes(head[20:21]) & _WEBP_ANIMATION)


def _video_stream(container: InputContainer) -> VideoStream:
    if not any(stream.codec_context for stream in container.streams):
        raise VideoUnreadableError("FFmpeg finds no stream it can decode; the file may be truncated.")
    streams = [stream for stream in container.streams.video if not stream.disposition & Disposition.attached_pic]
    if not streams:
        raise NoVideoStreamError("The file has no video stream; it may be audio only.")
    if tiles := sum(bool(stream.disposition & Disposition.dependent) for stream in streams):
        raise VideoUnreadableError(
            f"The picture is stored in {tiles} tiles, as in many HEIC photographs, which are not joined; convert it to "
            "JPEG or PNG."
        )
    stream = _shown(container, streams)
    if stream.codec_context is None:
        raise VideoUnreadableError("This FFmpeg build has no decoder for the video's codec; transcode it to H.264.")
    return stream


def _shown(container: InputContainer, streams: Sequence[VideoStream]) -> VideoStream:
    """Return the stream that FFmpeg's tools show, as `av_find_best_stream` decides.

    That compares how many frames of each stream were read while probing. Of an MP4, only the header is read, so its
    streams are ranked by the frames that it states.
    """
    if container.format.name == _MP4:
        return max(streams, key=_rank)  # the first of equals
    best = container.streams.best("video")
    return next((stream for stream in streams if stream is best), streams[0])


def _rank(stream: VideoStream) -> tuple[int, bool]:
    is_for_all = not stream.disposition & _FOR_SOME
    return is_for_all + bool(stream.disposition & Disposition.default), stream.frames != 1
