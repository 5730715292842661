"""The lower bound of all loaders: FFmpeg decodes the packets that the picks need, and nothing else is done."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING

import av

from reelabel.containers.demux import read_packets
from reelabel.decode.run_decoder import NonReferenceFilter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from av.packet import Packet
    from av.video.codeccontext import VideoCodecContext
    from av.video.stream import VideoStream


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
