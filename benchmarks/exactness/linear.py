"""The full linear decode by PyAV alone: the reference for every extracted frame."""

from __future__ import annotations

import multiprocessing
import resource
import signal
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from hashlib import sha256
from queue import SimpleQueue
from typing import TYPE_CHECKING, Self

import av
import av.error
import numpy as np
from av.stream import Disposition

from reelabel.errors import DecoderCrashedError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy.typing as npt
    from av.container import InputContainer
    from av.packet import Packet
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream


@dataclass(frozen=True, slots=True)
class LinearFrame:
    """One frame as the decoder outputs it.

    Attributes:
        pts: Presentation time in the stream's time base; None where there is none.
        is_marked: Whether the decoder marks it as a keyframe.
        is_flagged: Whether the container flags the packet that output it as a keyframe.
        digest: Hash of its size and its RGB pixels.
    """

    pts: int | None
    is_marked: bool
    is_flagged: bool
    digest: bytes


@dataclass(frozen=True, slots=True)
class LinearDecode:
    """Every frame of a video, in the decoder's output order.

    Attributes:
        frames: The frames.
        time_base_s: Unit of their timestamps, in seconds.
        refused: Timestamps of the packets that the decoder refused. Some decoders report damage a packet late, and drop
            the packet that they were given meanwhile.
    """

    frames: tuple[LinearFrame, ...]
    time_base_s: float
    refused: frozenset[int | None] = frozenset()

    @property
    def are_times_ordered(self) -> bool:
        """Whether the timestamps of frames that have one ascend; else they say nothing of when a frame is shown."""
        pts = [frame.pts for frame in self.frames if frame.pts is not None]
        return pts == sorted(pts)

    @property
    def keyframes(self) -> list[int]:
        """Positions of the marked frames, or of the flagged ones where none is marked."""
        marked = [position for position, frame in enumerate(self.frames) if frame.is_marked]
        return marked or [position for position, frame in enumerate(self.frames) if frame.is_flagged]

    @property
    def candidates(self) -> list[int]:
        """Positions that may be picked: the keyframes, or every frame where there is none."""
        return self.keyframes or list(range(len(self.frames)))


def decode_linearly(path: Path, *, in_fresh_memory: bool = False) -> LinearDecode:
    """Decode the first video stream from its first packet to its last, ignoring errors.

    Args:
        path: The file.
        in_fresh_memory: Keep every picture until the end, so that none reuses the memory of another. Where this changes
            the result, the decoder outputs memory that it never wrote.
    """
    with av.open(f"file:{path}", metadata_errors="replace") as container:
        streams = [stream for stream in container.streams.video if not stream.disposition & Disposition.attached_pic]
        if not streams or streams[0].codec_context is None:
            raise ValueError("there is no video stream that can be decoded")
        # Slice threads disable FFmpeg's error concealment, so that damage would look different each time; and
        # dav1d, with its own threads, outputs less of a damaged stream the more of them there are.
        streams[0].codec_context.thread_type, streams[0].codec_context.thread_count = "NONE", 1
        kept: list[VideoFrame] | None = [] if in_fresh_memory else None
        refused: set[int | None] = set()
        frames = tuple(_frames(container, streams[0], kept, refused))
        return LinearDecode(frames, float(streams[0].time_base or 0), frozenset(refused))


def digest_pixels(image: npt.NDArray[np.uint8]) -> bytes:
    """Hash an RGB image of shape (H, W, 3)."""
    return sha256(repr(image.shape).encode() + image.tobytes()).digest()


def _frames(
    container: InputContainer,
    stream: VideoStream,
    kept: list[VideoFrame] | None,
    refused: set[int | None],
) -> Iterator[LinearFrame]:
    for packet in _packets(container, stream):
        try:
            frames = stream.codec_context.decode(packet)
        except MemoryError:
            raise
        except av.error.FFmpegError:
            refused |= {packet.pts} if packet else set()
            continue
        if kept is not None:
            kept += frames
        for frame in frames:
            # Small frames take ten times as long with a thread for each core, which is PyAV's default.
            digest = digest_pixels(np.asarray(frame.to_ndarray(format="rgb24", threads=1), np.uint8))
            yield LinearFrame(frame.pts, bool(frame.key_frame), packet is not None and packet.is_keyframe, digest)


def _packets(container: InputContainer, stream: VideoStream) -> Iterator[Packet[VideoStream] | None]:
    """Yield packets until the end or the first error, then None to flush the decoder."""
    try:
        for packet in container.demux(stream):
            # FFmpeg's own tools skip empty packets, too: a decoder would take one for the end.
            if packet.size:
                yield packet
    except IndexError:
        # At the end: PyAV flushes streams that appeared meanwhile, but does not know them.
        pass
    except MemoryError:
        raise
    except av.error.FFmpegError:
        pass
    yield None


class ReferenceProcesses:
    """Processes that decode linearly; one that dies or takes too long is replaced. Thread-safe."""

    def __init__(self, processes: int, *, timeout_s: int, memory_mib: int) -> None:
        self._timeout_s, self._memory_mib = timeout_s, memory_mib
        self._idle: SimpleQueue[ProcessPoolExecutor] = SimpleQueue()
        for _ in range(processes):
            self._idle.put(self._make())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        while not self._idle.empty():
            self._idle.get().shutdown()

    def decode_linearly(self, path: Path, *, in_fresh_memory: bool = False) -> LinearDecode:
        """Decode a file; nothing, if it cannot be opened."""
        process = self._idle.get()
        try:
            return process.submit(_decode_or_nothing, path, self._timeout_s, in_fresh_memory=in_fresh_memory).result()
        except (BrokenProcessPool, MemoryError) as error:
            process.shutdown()
            process = self._make()
            raise DecoderCrashedError(f"The linear decode crashed ({type(error).__name__}).") from None
        finally:
            self._idle.put(process)

    def _make(self) -> ProcessPoolExecutor:
        context = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(1, mp_context=context, initializer=_limit_memory, initargs=(self._memory_mib,))


def _limit_memory(memory_mib: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (memory_mib * 1024**2, hard))


def _decode_or_nothing(path: Path, timeout_s: int, *, in_fresh_memory: bool) -> LinearDecode:
    signal.alarm(timeout_s)  # ends the process
    try:
        return decode_linearly(path, in_fresh_memory=in_fresh_memory)
    except MemoryError:
        raise
    except (av.error.FFmpegError, OSError, ValueError):
        return LinearDecode((), 0.0)
    finally:
        signal.alarm(0)
