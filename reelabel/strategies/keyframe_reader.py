"""Read the keyframes that an index lists, verifying each against its entry.

An index lists DTS (MP4) or cluster offsets (Matroska), and may be wrong. So each packet is demuxed, which applies
composition offsets and edit lists to give its PTS, and compared with its entry; and each frame with its packet.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import av.error

from reelabel.containers.container_index import read_index
from reelabel.decode.assemble import FrameInfo
from reelabel.decode.keyframe_check import prime_mpeg4_decoder
from reelabel.decode.nal_order import keeps_decode_position
from reelabel.decode.packet_decoder import CodecParameters, decode_packets_independently
from reelabel.fast_path import FastPathUnavailableError, IndexMismatchError
from reelabel.sampled_frames import UNKNOWN_POSITION
from reelabel.sources.sparse_file import ByteRange

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from av.container import InputContainer
    from av.packet import Packet
    from av.video.codeccontext import VideoCodecContext
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

    from reelabel.containers.container_index import IndexEntry
    from reelabel.limits import Limits

_GUESSED_BYTES = 64 * 1024  # for a keyframe whose size the index does not list


class KeyframeReader:
    """The keyframes of one open stream, by their numbers in its index.

    Attributes:
        index: The container's keyframe index.
        codec: Parameters for additional decoders; None if the codec's keyframes are not self-contained.
        first_pts: PTS of the first packet.
        is_mp4: Whether the container is MP4 or MOV, whose index lists DTS.
        shift: Difference between PTS and index time, from the first packet.
        demuxed: PTS of the keyframes read so far, by number.
    """

    def __init__(self, container: InputContainer, stream: VideoStream, size_bytes: int) -> None:
        """Read the index.

        Args:
            container: The open container.
            stream: Its video stream.
            size_bytes: Length of the file.

        Raises:
            MisledError: The index is missing or inconsistent.
        """
        self._container = container
        self._stream = stream
        self.is_mp4 = container.format.name != "matroska,webm"
        self.codec = CodecParameters.of(stream.codec_context)
        self._first = self._first_packet()
        self.index = read_index(container, stream, size_bytes)
        self.shift = self._check_first_packet(self._first)
        self.first_pts = self._first.pts or 0
        self.demuxed: dict[int, int] = {}
        # Frames before the first IDR picture of a stream may or may not be output.
        self._are_positions_known = self._first.is_keyframe and keeps_decode_position(self._first, stream.codec_context)

    def spans(self, numbers: Iterable[int]) -> list[ByteRange]:
        """Return the byte ranges of some keyframes."""
        return [ByteRange(self.index.keyframes[number].pos, self._size_bytes(number)) for number in numbers]

    @property
    def samples(self) -> int:
        """Number of packets in the index."""
        return len(self._stream.index_entries)

    @property
    def track_id(self) -> int:
        """The container's ID of the stream."""
        return self._stream.id

    @property
    def begins_with_keyframe(self) -> bool:
        """Whether the first presented frame is the first keyframe in the index."""
        return self.index.keyframes[0].number == 0 if self.is_mp4 else self._first.is_keyframe

    def presented_before_second_keyframe(self) -> list[int]:
        """Return the numbers of an MP4's presented packets before its second keyframe."""
        second, entries = self._next_entry(0), self._stream.index_entries
        return [n for n in range(second.number if second else len(entries)) if not entries[n].is_discard]

    @property
    def hidden_before(self) -> int | None:
        """Number of hidden frames before the first keyframe; None if positions are unknown."""
        return self.index.hidden_before if self._are_positions_known else None

    def read(
        self, numbers: Sequence[int], *, limits: Limits, threads: int = 1
    ) -> Iterator[tuple[FrameInfo, VideoFrame]]:
        """Decode keyframes by their numbers in the index, each from its own packet."""
        prime_mpeg4_decoder(self._stream.codec_context, self._first)
        packets = [self._read_packet(number) for number in numbers]
        times = [packet.pts for packet in packets if packet.pts is not None]
        if any(after <= before for before, after in pairwise(times)):
            raise FastPathUnavailableError("keyframes are not presented in index order")
        self.demuxed = dict(zip(numbers, times, strict=True))
        sights = (
            FrameInfo(packet.pts, self._position(number, packet), is_keyframe=True)
            for number, packet in zip(numbers, packets, strict=True)
        )
        return zip(sights, decode_packets_independently(packets, self._decoders(packets, limits, threads)), strict=True)

    def _decoders(
        self,
        packets: Sequence[Packet[VideoStream]],
        limits: Limits,
        threads: int,
    ) -> list[VideoCodecContext]:
        """Return the stream's own decoder, and additional ones if several threads may be used."""
        # Side data, such as new extradata, would reach only one of the decoders.
        if self.codec is None or any(any(packet.iter_sidedata()) for packet in packets):
            threads = 1
        return [self._stream.codec_context, *(self.codec.open(limits) for _ in range(threads - 1) if self.codec)]

    def _read_packet(self, number: int) -> Packet[VideoStream]:
        """Seek to a keyframe and demux its packet."""
        entry = self.index.keyframes[number]
        packet = self._seek_to(number)
        if self.is_mp4 and packet.pos != entry.pos and packet.dts is not None:
            # FFmpeg shifts timestamps differently if an edit list trims; one correction holds for all packets.
            self.shift += entry.timestamp - packet.dts
            packet = self._seek_to(number)
        is_expected = packet.pos == entry.pos if self.is_mp4 else packet.pts == entry.timestamp
        if not is_expected or not packet.is_keyframe:
            raise IndexMismatchError("a seek missed its target")
        if packet.is_corrupt or packet.pts is None:
            raise IndexMismatchError("a packet is cut short, or has no PTS")
        return packet

    def _seek_to(self, number: int) -> Packet[VideoStream]:
        try:
            self._container.seek(self._target(number), stream=self._stream, backward=True)
            return next(self._container.demux(self._stream))
        except (av.error.FFmpegError, StopIteration):
            raise IndexMismatchError("a seek failed") from None

    def _target(self, number: int) -> int:
        """Return a PTS from which a backward seek lands on a keyframe.

        In MP4 that is halfway to the next keyframe: entries hold DTS, and their difference from PTS is known only for
        the first packet.
        """
        timestamp = self.index.keyframes[number].timestamp
        if not self.is_mp4:
            return timestamp
        next_entry = self._next_entry(number)
        return timestamp + self.shift + ((next_entry.timestamp - timestamp) // 2 if next_entry else 0)

    def _size_bytes(self, number: int) -> int:
        """Return the size of a keyframe's packet, or an estimate if the index does not list it."""
        entry, next_entry = self.index.keyframes[number], self._next_entry(number)
        return entry.size or min(_GUESSED_BYTES, next_entry.pos - entry.pos if next_entry else _GUESSED_BYTES)

    def _next_entry(self, number: int) -> IndexEntry | None:
        return self.index.keyframes[number + 1] if number + 1 < len(self.index.keyframes) else None

    def _first_packet(self) -> Packet[VideoStream]:
        try:
            return next(self._container.demux(self._stream))
        except (av.error.FFmpegError, StopIteration):
            raise FastPathUnavailableError("the first packet cannot be read") from None

    def _check_first_packet(self, packet: Packet[VideoStream]) -> int:
        """Check the first packet against the index; return the difference between PTS and index time."""
        first = self._stream.index_entries[0]
        is_expected = packet.pos == first.pos if self.is_mp4 else packet.pts == first.timestamp
        # Matroska indexes only keyframes.
        if packet.pts is None or (not is_expected and (self.is_mp4 or packet.is_keyframe)):
            raise FastPathUnavailableError("the index does not start at the first packet")
        return packet.pts - first.timestamp

    def _position(self, number: int, packet: Packet[VideoStream]) -> int:
        """Return a keyframe's position in presentation order, if it follows from its position in the index."""
        hidden = self.hidden_before
        if hidden is None or not keeps_decode_position(packet, self._stream.codec_context):
            return UNKNOWN_POSITION
        return self.index.keyframes[number].number - hidden
