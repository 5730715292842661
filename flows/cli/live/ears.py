"""The audio of a source, as sessions take it: 16-bit samples of one channel at 16 kHz, in pieces with their times."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import av
import numpy as np

from reelabel_engine.live.items import AUDIO_HZ

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt
    from av.audio.frame import AudioFrame

_PIECE_S = 0.25
# Times that differ by less are those of one sound.
_GAP_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceAudio:
    """Audio to be sent.

    Attributes:
        time_s: When it begins, in seconds since the source's first frame.
        samples: At `AUDIO_HZ`; shape (N,), int16.
    """

    time_s: float
    samples: npt.NDArray[np.int16]

    @property
    def end_s(self) -> float:
        """When it ends."""
        return self.time_s + len(self.samples) / AUDIO_HZ


class Ears:
    """Takes audio as it is decoded, and gives it in pieces. Thread-safe."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._resampler: av.AudioResampler | None = None
        self._format: tuple[str, str, int] | None = None
        self._piece: list[npt.NDArray[np.int16]] = []
        self._start_s = self._end_s = 0.0
        self._whole: list[SourceAudio] = []
        self._lock = threading.Lock()

    def hear(self, frame: AudioFrame, time_s: float | None) -> None:
        """Take audio.

        Args:
            frame: As decoded.
            time_s: When it begins, in seconds since the source's first frame; None goes on where the last one ended.
        """
        with self._lock:
            form = (frame.format.name, frame.layout.name, frame.sample_rate)
            if form != self._format:
                self._format = form
                self._resampler = av.AudioResampler(format="s16", layout="mono", rate=AUDIO_HZ)
            assert self._resampler
            # A sound is never before the end of the last one, so that none is refused.
            if time_s is not None and time_s > self._end_s + _GAP_S:
                self._cut()
                self._start_s = self._end_s = time_s
            self._add(self._resampler.resample(frame))

    def end(self) -> None:
        """Take what the resampler still holds: there is no more."""
        with self._lock:
            if self._resampler:
                self._add(self._resampler.resample(None))
            self._cut()

    def until(self, time_s: float) -> Iterator[SourceAudio]:
        """Yield the pieces that have ended by a time, and forget them."""
        with self._lock:
            ended = [piece for piece in self._whole if piece.end_s <= time_s]
            del self._whole[: len(ended)]
        yield from ended

    def _add(self, frames: list[AudioFrame]) -> None:
        for frame in frames:
            samples = frame.to_ndarray()[0].astype("<i2")
            self._piece.append(samples)
            self._end_s += len(samples) / AUDIO_HZ
            if self._end_s - self._start_s >= _PIECE_S:
                self._cut()

    def _cut(self) -> None:
        if self._piece:
            self._whole.append(SourceAudio(time_s=self._start_s, samples=np.concatenate(self._piece)))
        self._piece, self._start_s = [], self._end_s
