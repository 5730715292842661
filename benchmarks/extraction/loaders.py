"""Other loaders of sixteen frames, for comparison, and the lower bounds of all.

Uniform sampling as in vLLM's loaders (`vllm.multimodal.video`, Apache-2.0: indices by `linspace`), and keyframes
as keyframe loaders usually take them: demux all packets for their flags, then seek to each.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import av
import numpy as np

from benchmarks.media.clips import FPS
from reelabel.containers.demux import read_packets
from reelabel.decode.render import Renderer, View, orientation_of
from reelabel.decode.run_decoder import NonReferenceFilter
from reelabel.options import Limits
from reelabel.sampling.options import Sampling
from reelabel.sampling.uniform import pick_evenly
from reelabel.sources.sparse_file import CachedRange

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import numpy.typing as npt
    from av.packet import Packet
    from av.video.codeccontext import VideoCodecContext
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

SAMPLING = Sampling(num_frames=16, max_pixels=602_112, size_multiple_px=28)  # at the size of Qwen's video processing
UNIFORM_SAMPLING = Sampling(sampler="uniform", num_frames=16, max_pixels=602_112, size_multiple_px=28)


class Stacker:
    """Render frames into one array, as the extraction does."""

    def __init__(self, *, native: bool = False) -> None:
        """Start empty; `native` frames keep their size."""
        self._native = native
        self._count = 0
        self._renderer: Renderer | None = None

    def add(self, frame: VideoFrame) -> None:
        if self._renderer is None:
            self._renderer = Renderer.from_frame(
                frame,
                view=View.of(SAMPLING, as_stored=self._native),
                limits=Limits(),
                orientation=orientation_of(frame),
            )
            self._images = np.empty((SAMPLING.num_frames, *self._renderer.shape), np.uint8)
        self._renderer.draw(frame, self._images[self._count])
        self._count += 1

    def stack(self) -> npt.NDArray[np.uint8]:
        """Return all frames; shape (N, H, W, 3)."""
        return self._images[: self._count]


def uniform_with_opencv(path: Path) -> npt.NDArray[np.uint8]:
    """Grab every frame up to the last wanted one, and retrieve the wanted ones at native size."""
    import cv2  # noqa: PLC0415 - optional

    capture = cv2.VideoCapture(str(path))
    wanted = np.linspace(0, int(capture.get(cv2.CAP_PROP_FRAME_COUNT)) - 1, SAMPLING.num_frames, dtype=int).tolist()
    images = []
    for index in range(wanted[-1] + 1):
        if not capture.grab():
            break
        if index in wanted:
            images.append(cv2.cvtColor(capture.retrieve()[1], cv2.COLOR_BGR2RGB))
    capture.release()
    return np.stack(images)


def uniform_with_pyav(path: Path) -> npt.NDArray[np.uint8]:
    """Seek before each wanted frame and decode up to it, with PyAV's own choice of threads, at native size."""
    stacker = Stacker(native=True)
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        stream.thread_type = "AUTO"
        assert stream.time_base is not None
        for index in np.linspace(0, stream.frames - 1, SAMPLING.num_frames, dtype=int).tolist():
            wanted = round(index / FPS / stream.time_base)
            container.seek(wanted, stream=stream)
            stacker.add(next(frame for frame in container.decode(stream) if (frame.pts or 0) >= wanted))
    return stacker.stack()


def demux_and_seek(path: Path) -> npt.NDArray[np.uint8]:
    """List the keyframes by demuxing everything, then seek to each, at native size."""
    stacker = Stacker(native=True)
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        keyframes = [packet.pts for packet in container.demux(stream) if packet.is_keyframe and packet.pts is not None]
        for number in dict.fromkeys(pick_evenly(len(keyframes), SAMPLING.num_frames)):
            container.seek(keyframes[number], stream=stream)
            stacker.add(next(container.decode(stream)))
    return stacker.stack()


@dataclass(frozen=True, slots=True)
class FileParts:
    """A local file that is read in parts."""

    path: Path

    @property
    def size_bytes(self) -> int:
        return self.path.stat().st_size

    @property
    def max_wait_s(self) -> float:
        return math.inf

    def read(self, start: int, size: int) -> bytes:
        with self.path.open("rb", buffering=0) as file:
            file.seek(start)
            return file.read(size)


@dataclass(frozen=True, slots=True)
class HeldParts:
    """Parts of a file held in memory, as the packets of `Limit` are."""

    size_bytes: int
    parts: tuple[CachedRange, ...]

    @property
    def max_wait_s(self) -> float:
        return math.inf

    def read(self, start: int, size: int) -> bytes:
        part = next(part for part in self.parts if part.start <= start and start + size <= part.end)
        return part.data[start - part.start : start - part.start + size]


class Limit:
    """The lower bound: picked packets in memory, an open decoder, the same conversion."""

    def __init__(self, path: Path) -> None:
        with av.open(str(path)) as container:
            stream = container.streams.video[0]
            packets = [packet for packet in container.demux(stream) if packet.size and packet.is_keyframe]
            self._packets: list[Packet[VideoStream]] = [
                packets[number] for number in dict.fromkeys(pick_evenly(len(packets), SAMPLING.num_frames))
            ]
            extradata = stream.codec_context.extradata
        codec: VideoCodecContext = av.CodecContext.create("h264", "r")
        codec.thread_type, codec.thread_count, codec.extradata = "NONE", 1, extradata
        self._codec = codec

    @property
    def size_bytes(self) -> int:
        return sum(packet.size for packet in self._packets)

    @property
    def extents(self) -> tuple[CachedRange, ...]:
        """The picked packets with their offsets in the file."""
        return tuple(CachedRange(packet.pos or 0, bytes(packet)) for packet in self._packets)

    def __call__(self) -> npt.NDArray[np.uint8]:
        stacker = Stacker()
        for packet in self._packets:
            frames = self._codec.decode(packet) + self._codec.decode(None)
            self._codec.flush_buffers()
            stacker.add(frames[0])
        return stacker.stack()


class BareDecode:
    """Decodes picked frames from packets in memory, without a check, a conversion or a copy."""

    def __init__(self, path: Path | str, indices: Sequence[int]) -> None:
        """Read the packets of the GOPs that hold a picked frame, each up to its last pick.

        Args:
            path: A file with closed GOPs, all of whose frames are shown.
            indices: Positions of the picked frames, ascending.
        """
        with av.open(str(path)) as container:
            listed = [
                (packet.pts, packet.is_keyframe) for packet in read_packets(container, container.streams.video[0])
            ]
        times = sorted(pts for pts, _ in listed if pts is not None)
        self._wanted = {times[index] for index in indices}
        starts = [number for number, (_, is_keyframe) in enumerate(listed) if is_keyframe]
        self._runs = []
        with av.open(str(path)) as container:
            stream = container.streams.video[0]
            self._name, self._extradata = stream.codec_context.name, stream.codec_context.extradata
            packets, at = read_packets(container, stream), 0
            for start, end in zip(starts, [*starts[1:], len(listed)], strict=True):
                picks = [number for number in range(start, end) if listed[number][0] in self._wanted]
                if picks:
                    stop = picks[-1] + 1
                    self._runs.append(list(islice(packets, start - at, stop - at)))
                    at = stop

    def decode(self, threads: int, *, skips_leaves: bool) -> int:
        """Decode, with one decoder for each thread, long runs first, so that all end at about the same time.

        Args:
            threads: Number of threads.
            skips_leaves: Whether pictures are left out that are neither picked nor referred to.

        Returns:
            The number of pictures decoded.
        """
        runs = iter(sorted(self._runs, key=len, reverse=True))
        with ThreadPoolExecutor(threads) as pool:
            workers = [pool.submit(self._decode, runs, skips_leaves=skips_leaves) for _ in range(threads)]
        return sum(worker.result() for worker in workers)

    def _decode(self, runs: Iterator[list[Packet[VideoStream]]], *, skips_leaves: bool) -> int:
        codec: VideoCodecContext = av.CodecContext.create(self._name, "r")  # type: ignore[assignment]
        codec.thread_type, codec.thread_count, codec.extradata = "NONE", 1, self._extradata
        leaves, pictures = NonReferenceFilter(codec), 0
        for run in runs:
            for packet in run:
                if not skips_leaves or leaves.accepts(packet, is_wanted=packet.pts in self._wanted):
                    pictures += len(codec.decode(packet))
            pictures += len(codec.decode(None))
            codec.flush_buffers()
        return pictures
