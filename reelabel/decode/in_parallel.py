"""Share the runs of one video among several decoders, each in a thread of its own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from threading import Event, Semaphore
from typing import TYPE_CHECKING

from reelabel.decode.assemble import DecodeStats

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from av.container import InputContainer
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

    from reelabel.decode.assemble import FrameInfo
    from reelabel.decode.run_decoder import RunDecoder

    Opened = tuple[InputContainer, VideoStream]
    Decoded = tuple[FrameInfo, VideoFrame]

_WAITING_PER_DECODER = 2  # decoded frames are large
_HANDED_PIXELS = 256 * 1024  # of the frames that are handed over at once; one at a time, tiny ones cost more than that


def decode_in_parallel(
    runs: Sequence[Sequence[FrameInfo]],
    videos: Sequence[AbstractContextManager[Opened]],
    make_decoder: Callable[..., RunDecoder],
    stats: DecodeStats,
) -> Iterator[Decoded]:
    """Decode runs of frames, with one decoder per opening of their video.

    Args:
        runs: The wanted frames, the first run first; each run can be decoded by itself.
        videos: Each opens the video, in the thread of its decoder; the first one decodes the first run. Close this
            generator before closing them.
        make_decoder: Returns the decoder of an opened video.
        stats: Counts the frames that all of them have decoded.

    Yields:
        The wanted frames: the first one first, the others in any order.

    Raises:
        FallbackRequired: As `RunDecoder.decode` does.
        MemoryError: Memory does not suffice for so many decoders.
    """
    relay = _Relay(runs[0][0], decoders=len(videos))
    remaining = iter(runs[len(videos) :])
    counts = [DecodeStats() for _ in videos]

    def work(video: AbstractContextManager[Opened], counted: DecodeStats, run: Sequence[FrameInfo] | None) -> None:
        try:
            with video as (container, stream):
                decoder = make_decoder(container=container, stream=stream, stats=counted, stopped=relay.stopped)
                while run and not relay.stopped.is_set():
                    for handful in _handfuls(decoder.decode(run)):
                        relay.hand_over(handful)
                    run = next(remaining, None)
        except BaseException as error:  # noqa: BLE001 - raised again where the frames are taken
            relay.fail(error)

    with ThreadPoolExecutor(len(videos)) as threads:
        try:
            try:
                for video, counted, run in zip(videos, counts, runs, strict=False):
                    threads.submit(work, video, counted, run)
            except RuntimeError as error:
                raise MemoryError(str(error)) from None  # no room for another thread's stack
            left = sum(map(len, runs))
            while left:
                handful = relay.take()
                yield from handful
                left -= len(handful)
        finally:
            relay.stop()
            threads.shutdown()
            stats.frames += sum(counted.frames for counted in counts)


def _handfuls(decoded: Iterable[Decoded]) -> Iterator[list[Decoded]]:
    """Put successive frames together, as many as are handed over at once."""
    handful: list[Decoded] = []
    for info, frame in decoded:
        handful.append((info, frame))
        if len(handful) * frame.width * frame.height >= _HANDED_PIXELS:
            yield handful
            handful = []
    if handful:
        yield handful


class _Relay:
    """Hands frames over to the thread that renders them, the first wanted one first.

    Attributes:
        stopped: Set when no more frames are taken.
    """

    def __init__(self, first: FrameInfo, *, decoders: int) -> None:
        """Let some frames of each decoder wait."""
        self.stopped = Event()
        self._first, self._has_begun = first, Event()
        self._decoders, self._room = decoders, Semaphore(_WAITING_PER_DECODER * decoders)
        self._waiting: SimpleQueue[list[Decoded] | BaseException] = SimpleQueue()

    def hand_over(self, handful: list[Decoded]) -> None:
        """Hand frames over as soon as there is room; drop them after `stop`."""
        is_first = handful[0][0] == self._first
        if not is_first:
            self._has_begun.wait()
        if not self.stopped.is_set():
            self._room.acquire()
        self._waiting.put(handful)
        self._has_begun.set()

    def fail(self, error: BaseException) -> None:
        """Raise an error where frames are taken."""
        self._waiting.put(error)

    def take(self) -> list[Decoded]:
        """Return the next frames, or raise the error of a decoder."""
        taken = self._waiting.get()
        if isinstance(taken, BaseException):
            raise taken
        self._room.release()
        return taken

    def stop(self) -> None:
        """Let every decoder end."""
        self.stopped.set()
        self._has_begun.set()
        self._room.release(self._decoders)
