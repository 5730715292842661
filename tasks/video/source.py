"""Opening a video and walking through its frames."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import av
import av.error
from av.stream import Disposition

from infra.errors import (
    NoVideoStreamError,
    VideoEmptyError,
    VideoMissingError,
    VideoTooLargeError,
    VideoUnreadableError,
)
from tasks.video.claims import check_claim, check_frame_size, decoder_limits
from tasks.video.misled import MisledError
from tasks.video.ranges import SparseFile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from av.container import InputContainer
    from av.packet import Packet
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

    from tasks.video.limits import Limits

# Playlists would read other files under the video's name; `tty` takes any text for a film of letters.
_REFUSED_FORMATS = frozenset({"concat", "dash", "hls", "image2", "imf", "lavfi", "rtsp", "sdp", "tty"})
_FORMATS = ",".join(sorted(av.formats_available - _REFUSED_FORMATS))
# FFmpeg reads on rather than seeks where a place is less than this and 32 KiB ahead. It concerns remote files alone.
_BUFFER_BYTES = 8 * 1024
_HEAD_BYTES = 1024
_SILENT_PATCHERS = frozenset({"ffv1"})
_QUICKLY = {"skip_frame": "all", "probesize": "32", "max_ts_probe": "0", "fpsprobesize": "0"}


@contextmanager
def open_video(
    source: Path | SparseFile,
    limits: Limits,
    *,
    quickly: bool = False,
    strictly: bool = False,
) -> Iterator[tuple[InputContainer, VideoStream]]:
    """Open a file and its first video stream, cover pictures aside.

    Args:
        source: The file.
        limits: What the video may cost.
        quickly: Decode nothing to learn of the streams; for containers whose header says enough.
        strictly: End at damage in a picture, which decoders else patch from earlier ones.

    Raises:
        VideoMissingError: There is no file.
        VideoEmptyError: The file has no bytes.
        VideoUnreadableError: FFmpeg cannot open it.
        NoVideoStreamError: There is no video stream in it.
        VideoTooLargeError: The file or its frames exceed the limits.
        MisledError: Strictness was asked for, and the decoder knows none.
    """
    with _open_container(source, limits, _QUICKLY if quickly else {}) as container:
        stream = _video_stream(container)
        check_frame_size(stream.codec_context.width, stream.codec_context.height, limits)
        _check_duration(container, stream, limits)
        # One thread: processes run side by side, and threads would delay the first frame after a seek.
        stream.codec_context.thread_type = "NONE"
        stream.codec_context.thread_count = 1
        if strictly and stream.codec_context.name in _SILENT_PATCHERS:
            raise MisledError("its decoder patches damage without a word")
        strictness = {"err_detect": "explode"} if strictly else {}
        stream.codec_context.options = decoder_limits(limits) | strictness
        try:
            yield container, stream
        except MemoryError:
            # HEVC's decoder calls it so, too, when a picture exceeds the limit.
            check_frame_size(stream.codec_context.width, stream.codec_context.height, limits)
            raise


def check_count(frames: int, limits: Limits) -> None:
    """Refuse too many frames.

    Raises:
        VideoTooLargeError: They exceed `limits.max_frames`.
    """
    if frames > limits.max_frames:
        raise VideoTooLargeError(f"The video has more frames than extract.max_frames ({limits.max_frames:,}).")


def _check_duration(container: InputContainer, stream: VideoStream, limits: Limits) -> None:
    duration_s = float((stream.duration or 0) * (stream.time_base or 0)) or (container.duration or 0) / av.time_base
    if duration_s > limits.max_duration_s:
        raise VideoTooLargeError(
            f"The video claims to last {duration_s:,.0f} s, more than extract.max_duration_s "
            f"({limits.max_duration_s:,.0f}).",
        )


def decode_all(
    container: InputContainer,
    stream: VideoStream,
    limits: Limits,
) -> Iterator[tuple[VideoFrame, bool]]:
    """Decode every frame, past errors, as FFmpeg does by default.

    Yields:
        A frame, and whether the packet that brought it out is flagged as a keyframe.

    Raises:
        VideoTooLargeError: There are more frames than `limits.max_frames`, or larger ones than allowed.
    """
    count = 0
    for packet in _packets(container, stream):
        try:
            frames = stream.codec_context.decode(packet)
        except MemoryError:
            raise
        except av.error.FFmpegError:
            check_claim(stream.codec_context, packet, limits)
            continue
        count += len(frames)
        check_count(count, limits)
        for frame in frames:
            yield frame, packet is not None and packet.is_keyframe


def read_packets(container: InputContainer, stream: VideoStream) -> Iterator[Packet[VideoStream]]:
    """Read on from where the container stands; empty packets, which would end a decoder's work, are left out.

    Raises:
        av.error.FFmpegError: The demuxer stopped.
    """
    # At the end PyAV stumbles over streams that appeared on the way.
    with suppress(IndexError):
        yield from (packet for packet in container.demux(stream) if packet.size)


def _packets(container: InputContainer, stream: VideoStream) -> Iterator[Packet[VideoStream] | None]:
    """Read to the end or to the first error; None at last asks the decoder for what it holds back."""
    try:
        yield from read_packets(container, stream)
    except MemoryError:
        raise
    except av.error.FFmpegError:
        pass
    yield None


def _open_container(source: Path | SparseFile, limits: Limits, probing: dict[str, str]) -> InputContainer:
    try:
        size_bytes = source.size_bytes if isinstance(source, SparseFile) else source.stat().st_size
        if size_bytes == 0:
            raise VideoEmptyError("The video has no bytes; upload it again.")
        if size_bytes > limits.max_video_bytes:
            raise VideoTooLargeError(f"The video has {size_bytes:,} bytes; extract.max_video_bytes allows fewer.")
        # `file:` keeps a colon in a name from being read as a protocol.
        file: Any = source if isinstance(source, SparseFile) else f"file:{source}"
        options = {"format_whitelist": _FORMATS, "protocol_whitelist": "file", **probing}
        container: InputContainer = av.open(
            file, "r", options=options, metadata_errors="replace", buffer_size=_BUFFER_BYTES
        )
    except MemoryError:
        raise
    except FileNotFoundError:
        raise VideoMissingError(f"There is no video at {source}; check the path.") from None
    except (av.error.FFmpegError, OSError, ValueError) as error:
        if _is_playlist(source):
            raise VideoUnreadableError("This is a playlist, which names other files; give the video itself.") from None
        raise VideoUnreadableError(
            f"FFmpeg cannot open the video ({_reason(error)}); is it a whole video file?"
        ) from None
    return container


def _is_playlist(source: Path | SparseFile) -> bool:
    if isinstance(source, SparseFile):
        return False  # a large remote file
    with suppress(OSError), source.open("rb") as file:
        head = file.read(_HEAD_BYTES).lstrip(b"\xef\xbb\xbf \r\n")
        return head.startswith((b"#EXTM3U", b"ffconcat version")) or b"<MPD" in head
    return False


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _video_stream(container: InputContainer) -> VideoStream:
    if not any(stream.codec_context for stream in container.streams):
        raise VideoUnreadableError("FFmpeg finds no stream that it can decode; is the file cut short?")
    streams = [stream for stream in container.streams.video if not stream.disposition & Disposition.attached_pic]
    if not streams:
        raise NoVideoStreamError("The file holds no video stream; is it audio only?")
    if streams[0].codec_context is None:
        raise VideoUnreadableError("This build of FFmpeg has no decoder for the video's codec; convert it to H.264.")
    return streams[0]
