"""The shortest way: keyframes by the container's own index, each decoded from its packet alone.

An index gives decoding times (MP4) or the places of clusters (Matroska), and may be wrong. So each
packet is demuxed, which gives its presentation time by composition offsets and edit lists, and held
against its entry; and each frame is held against its packet.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import av.error
from av.stream import Discard

from tasks.video.header import is_mp4, read_index
from tasks.video.misled import MisledError
from tasks.video.position import stands_after_all_before
from tasks.video.proof import decode_alone
from tasks.video.ranges import Span, SparseFile
from tasks.video.shots import UNKNOWN_POSITION, Census, Sight, shoot
from tasks.video.source import open_video

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path
    from typing import BinaryIO

    from av.container import InputContainer
    from av.packet import Packet
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

    from tasks.video.keyframes import Keyframes
    from tasks.video.shots import Request

_CLUSTER_GUESS_BYTES = 64 * 1024
_PRIMINGS = 2


def extract_by_index(request: Request) -> Keyframes:
    """Read the header, and the picked keyframes' packets.

    Raises:
        MisledError: The container has no index, or something contradicts it.
        VideoError: As `extract_keyframes` does.
    """
    if request.every:
        raise MisledError("every keyframe was asked for")
    with _reading(request.source) as (file, size_bytes):
        is_quick = is_mp4(file, size_bytes)
    with open_video(request.source, request.limits, quickly=is_quick, strictly=True) as opened:
        container, stream = opened
        for other in container.streams:
            if other is not stream:
                other.discard = Discard.all
        reader = _Reader(container, stream, size_bytes)
        chosen = request.choose(len(reader.index.keyframes))
        numbers = list(dict.fromkeys(chosen))
        if isinstance(request.source, SparseFile):
            request.source.header = request.source.extents
            request.source.prefetch(reader.spans(numbers))
        census = Census(keyframes=len(reader.index.keyframes), frames=reader.index.frames)
        return shoot(request, opened, chosen=chosen, frames=reader.read(numbers), census=census, method="index")


class _Reader:
    """Reads keyframes that an index lists."""

    def __init__(self, container: InputContainer, stream: VideoStream, size_bytes: int) -> None:
        self._container = container
        self._stream = stream
        self._is_mp4 = container.format.name != "matroska,webm"
        self._first = self._first_packet()
        self.index = read_index(container, stream, size_bytes)
        self._shift = self._compare_with_index(self._first)
        # What comes before a stream's first whole picture may or may not be shown.
        self._are_positions_known = self._first.is_keyframe and stands_after_all_before(
            self._first, stream.codec_context
        )

    def spans(self, numbers: Iterable[int]) -> list[Span]:
        """Say which parts of the file hold some keyframes."""
        entries = [self.index.keyframes[number] for number in numbers]
        return [Span(entry.pos, entry.size or _CLUSTER_GUESS_BYTES) for entry in entries]

    def read(self, numbers: Sequence[int]) -> Iterator[tuple[Sight, VideoFrame]]:
        """Decode keyframes, by their numbers in the index, each from its packet alone."""
        self._prime()
        before: int | None = None
        for number in numbers:
            packet = self._packet(number)
            frame = decode_alone(self._stream.codec_context, packet)
            if before is not None and packet.pts is not None and packet.pts <= before:
                raise MisledError("keyframes are not shown in the order of the index")
            before = packet.pts
            yield Sight(packet.pts, self._position(number, packet), is_keyframe=True), frame

    def _prime(self) -> None:
        """Have MPEG-4's decoder make up its mind about the encoder.

        It takes missing padding for an encoder's habit until whole pictures tell it otherwise
        (`padding_bug_score` in FFmpeg), and until then takes some damage for that habit.
        """
        if self._stream.codec_context.name == "mpeg4":
            for _ in range(_PRIMINGS):
                with suppress(MisledError):
                    decode_alone(self._stream.codec_context, self._first)

    def _packet(self, number: int) -> Packet[VideoStream]:
        """Seek to a keyframe and demux its packet."""
        entry = self.index.keyframes[number]
        packet = self._land(number)
        if self._is_mp4 and packet.pos != entry.pos and packet.dts is not None:
            # FFmpeg reckons another way where an edit list trims; once corrected, it holds for all.
            self._shift += entry.timestamp - packet.dts
            packet = self._land(number)
        is_it = packet.pos == entry.pos if self._is_mp4 else packet.pts == entry.timestamp
        if not is_it or not packet.is_keyframe:
            raise MisledError("a seek landed elsewhere")
        if packet.is_corrupt or packet.pts is None:
            raise MisledError("a packet is cut short, or has no presentation time")
        return packet

    def _land(self, number: int) -> Packet[VideoStream]:
        try:
            self._container.seek(self._target(number), stream=self._stream, backward=True)
            return next(self._container.demux(self._stream))
        except (av.error.FFmpegError, StopIteration):
            raise MisledError("a seek ended in an error") from None

    def _target(self, number: int) -> int:
        """Choose a presentation time from which a seek back lands on a keyframe.

        In MP4 that is half-way to the next one: entries hold decoding times, and how far the
        presentation times are from them is only known for the first packet.
        """
        timestamp = self.index.keyframes[number].timestamp
        if not self._is_mp4:
            return timestamp
        following = self.index.keyframes[number + 1 : number + 2]
        reach = (following[0].timestamp - timestamp) // 2 if following else 0
        return timestamp + self._shift + reach

    def _first_packet(self) -> Packet[VideoStream]:
        try:
            return next(self._container.demux(self._stream))
        except (av.error.FFmpegError, StopIteration):
            raise MisledError("the first packet cannot be read") from None

    def _compare_with_index(self, packet: Packet[VideoStream]) -> int:
        """Hold the first packet against the index; gives how far presentation times are from the index's own."""
        first = self._stream.index_entries[0]
        is_it = packet.pos == first.pos if self._is_mp4 else packet.pts == first.timestamp
        # Matroska lists keyframes alone.
        if packet.pts is None or (not is_it and (self._is_mp4 or packet.is_keyframe)):
            raise MisledError("the index does not begin with the first packet")
        return packet.pts - first.timestamp

    def _position(self, number: int, packet: Packet[VideoStream]) -> int:
        """Count the frames shown before a keyframe, where all that come before it are shown before it."""
        hidden = self.index.hidden_before if self._are_positions_known else None
        if hidden is None or not stands_after_all_before(packet, self._stream.codec_context):
            return UNKNOWN_POSITION
        return self.index.keyframes[number].number - hidden


@contextmanager
def _reading(source: Path | SparseFile) -> Iterator[tuple[BinaryIO | SparseFile, int]]:
    """Give a video as a binary file, and its length."""
    if isinstance(source, SparseFile):
        yield source, source.size_bytes
        return
    try:
        with source.open("rb", buffering=0) as file:
            yield file, source.stat().st_size
    except OSError:
        raise MisledError("it cannot be read in parts") from None
