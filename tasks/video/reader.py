"""Reading the keyframes that an index lists, each held against its entry.

An index gives decoding times (MP4) or the places of clusters (Matroska), and may be wrong. So each
packet is demuxed, which gives its presentation time by composition offsets and edit lists, and held
against its entry; and each frame is held against its packet.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import av.error

from tasks.video.codec import CodecFacts, decode_each
from tasks.video.header import read_index
from tasks.video.keyframes import UNKNOWN_POSITION
from tasks.video.misled import ContradictedError, MisledError
from tasks.video.position import stands_after_all_before
from tasks.video.proof import prime
from tasks.video.ranges import Span
from tasks.video.shots import Sight

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from av.container import InputContainer
    from av.packet import Packet
    from av.video.codeccontext import VideoCodecContext
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

    from tasks.video.header import Entry
    from tasks.video.limits import Limits

_GUESS_BYTES = 64 * 1024  # of a keyframe whose size is not listed


class KeyframeReader:
    """The keyframes of one open stream, by their numbers in its index.

    Attributes:
        index: What the container lists.
        codec: What another decoder of these keyframes must know; None where one will not do.
        first_pts: Presentation time of the first packet.
        is_mp4: Whether the container is MP4 or MOV, whose index holds decoding times.
        shift: From the index's times to presentation times, by the first packet.
        demuxed: Presentation times of those keyframes that were read, by their numbers.
    """

    def __init__(self, container: InputContainer, stream: VideoStream, size_bytes: int) -> None:
        """Read the index of a file of `size_bytes`.

        Raises:
            MisledError: There is none, or it cannot be true.
        """
        self._container = container
        self._stream = stream
        self.is_mp4 = container.format.name != "matroska,webm"
        self.codec = CodecFacts.of(stream.codec_context)
        self._first = self._first_packet()
        self.index = read_index(container, stream, size_bytes)
        self.shift = self._compare_with_index(self._first)
        self.first_pts = self._first.pts or 0
        self.demuxed: dict[int, int] = {}
        # What comes before a stream's first whole picture may or may not be shown.
        self._are_positions_known = self._first.is_keyframe and stands_after_all_before(
            self._first, stream.codec_context
        )

    def spans(self, numbers: Iterable[int]) -> list[Span]:
        """Say which parts of the file hold some keyframes."""
        return [Span(self.index.keyframes[number].pos, self._size_bytes(number)) for number in numbers]

    @property
    def samples(self) -> int:
        """Packets that the index lists."""
        return len(self._stream.index_entries)

    @property
    def track_id(self) -> int:
        """The container's own number of the stream."""
        return self._stream.id

    @property
    def begins_with_keyframe(self) -> bool:
        """Whether the first frame that is shown is the first keyframe of the index."""
        return self.index.keyframes[0].number == 0 if self.is_mp4 else self._first.is_keyframe

    def shown_first(self) -> list[int]:
        """Number the packets of an MP4 that are shown and come before its second keyframe."""
        second, entries = self._following(0), self._stream.index_entries
        return [n for n in range(second.number if second else len(entries)) if not entries[n].is_discard]

    @property
    def hidden_before(self) -> int | None:
        """Frames before the first keyframe that are not shown; None where positions cannot be told."""
        return self.index.hidden_before if self._are_positions_known else None

    def read(self, numbers: Sequence[int], *, limits: Limits, threads: int = 1) -> Iterator[tuple[Sight, VideoFrame]]:
        """Decode keyframes, by their numbers in the index, each from its packet alone."""
        prime(self._stream.codec_context, self._first)
        packets = [self._packet(number) for number in numbers]
        times = [packet.pts for packet in packets if packet.pts is not None]
        if any(after <= before for before, after in pairwise(times)):
            raise MisledError("keyframes are not shown in the order of the index")
        self.demuxed = dict(zip(numbers, times, strict=True))
        sights = (
            Sight(packet.pts, self._position(number, packet), is_keyframe=True)
            for number, packet in zip(numbers, packets, strict=True)
        )
        return zip(sights, decode_each(packets, self._decoders(packets, limits, threads)), strict=True)

    def _decoders(
        self,
        packets: Sequence[Packet[VideoStream]],
        limits: Limits,
        threads: int,
    ) -> list[VideoCodecContext]:
        """Give the stream's own decoder, and more where several threads may share the work."""
        # Side data, such as another configuration, would reach one decoder alone.
        if self.codec is None or any(any(packet.iter_sidedata()) for packet in packets):
            threads = 1
        return [self._stream.codec_context, *(self.codec.open(limits) for _ in range(threads - 1) if self.codec)]

    def _packet(self, number: int) -> Packet[VideoStream]:
        """Seek to a keyframe and demux its packet."""
        entry = self.index.keyframes[number]
        packet = self._land(number)
        if self.is_mp4 and packet.pos != entry.pos and packet.dts is not None:
            # FFmpeg reckons another way where an edit list trims; once corrected, it holds for all.
            self.shift += entry.timestamp - packet.dts
            packet = self._land(number)
        is_it = packet.pos == entry.pos if self.is_mp4 else packet.pts == entry.timestamp
        if not is_it or not packet.is_keyframe:
            raise ContradictedError("a seek landed elsewhere")
        if packet.is_corrupt or packet.pts is None:
            raise ContradictedError("a packet is cut short, or has no presentation time")
        return packet

    def _land(self, number: int) -> Packet[VideoStream]:
        try:
            self._container.seek(self._target(number), stream=self._stream, backward=True)
            return next(self._container.demux(self._stream))
        except (av.error.FFmpegError, StopIteration):
            raise ContradictedError("a seek ended in an error") from None

    def _target(self, number: int) -> int:
        """Choose a presentation time from which a seek back lands on a keyframe.

        In MP4 that is half-way to the next one: entries hold decoding times, and how far the
        presentation times are from them is only known for the first packet.
        """
        timestamp = self.index.keyframes[number].timestamp
        if not self.is_mp4:
            return timestamp
        following = self._following(number)
        return timestamp + self.shift + ((following.timestamp - timestamp) // 2 if following else 0)

    def _size_bytes(self, number: int) -> int:
        """Give the size of a keyframe's packet, or guess it where the index does not tell."""
        entry, following = self.index.keyframes[number], self._following(number)
        return entry.size or min(_GUESS_BYTES, following.pos - entry.pos if following else _GUESS_BYTES)

    def _following(self, number: int) -> Entry | None:
        return self.index.keyframes[number + 1] if number + 1 < len(self.index.keyframes) else None

    def _first_packet(self) -> Packet[VideoStream]:
        try:
            return next(self._container.demux(self._stream))
        except (av.error.FFmpegError, StopIteration):
            raise MisledError("the first packet cannot be read") from None

    def _compare_with_index(self, packet: Packet[VideoStream]) -> int:
        """Hold the first packet against the index; gives how far presentation times are from the index's own."""
        first = self._stream.index_entries[0]
        is_it = packet.pos == first.pos if self.is_mp4 else packet.pts == first.timestamp
        # Matroska lists keyframes alone.
        if packet.pts is None or (not is_it and (self.is_mp4 or packet.is_keyframe)):
            raise MisledError("the index does not begin with the first packet")
        return packet.pts - first.timestamp

    def _position(self, number: int, packet: Packet[VideoStream]) -> int:
        """Count the frames shown before a keyframe, where all that come before it are shown before it."""
        hidden = self.hidden_before
        if hidden is None or not stands_after_all_before(packet, self._stream.codec_context):
            return UNKNOWN_POSITION
        return self.index.keyframes[number].number - hidden
