"""What a session shows its model: pairs of frames, each a video of two at their true times, and spans of audio."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from reelabel_engine.live.items import AUDIO_HZ, SPAN_S, AudioItem, LiveItem

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

_SHORTEST = AUDIO_HZ // 10  # samples; the encoder makes no token of less than 30 ms
TOLERANCE_S = 0.5  # by which clocks may differ within a span


class Spans:
    """Cuts audio into spans as it comes.

    Attributes:
        end_s: Where the audio ends so far, in seconds since the session began.
    """

    def __init__(self) -> None:
        """Start with none."""
        self.end_s = 0.0
        self._begin_s = 0.0  # of the span that is still open
        self._open: list[npt.NDArray[np.int16]] = []
        self._samples = 0

    @property
    def open(self) -> AudioItem | None:
        """The span that is not complete, if there is one."""
        if not self._samples:
            return None
        samples = np.concatenate(self._open)
        return AudioItem(samples=np.pad(samples, (0, max(0, _SHORTEST - len(samples)))), time_s=self._begin_s)

    def add(self, samples: npt.NDArray[np.int16], time_s: float) -> tuple[AudioItem, ...]:
        """Add audio.

        Args:
            samples: Shape (N,), int16; kept, so it must not change.
            time_s: Of the first one, in seconds since the session began. Audio that begins within half a second of the
                end of what came before goes on from there; later audio begins a span of its own.

        Returns:
            The spans that are complete now.
        """
        complete = self.cut() if abs(time_s - self.end_s) > TOLERANCE_S else ()
        if not self._samples and (complete or time_s > self.end_s):
            self.end_s = time_s
        while len(samples):
            if not self._samples:
                self._begin_s = self.end_s
            head, samples = np.split(samples, [round(SPAN_S * AUDIO_HZ) - self._samples])
            self._open.append(head)
            self._samples += len(head)
            self.end_s = self._begin_s + self._samples / AUDIO_HZ
            if self._samples == round(SPAN_S * AUDIO_HZ):
                complete += self.cut()
        return complete

    def cut(self, until_s: float = float("inf")) -> tuple[AudioItem, ...]:
        """End the open span, if its two seconds are over at a time; return it."""
        span = self.open
        if span is None or self._begin_s + SPAN_S > until_s:
            return ()
        self._open, self._samples = [], 0
        return (span,)


class Pairs:
    """Pairs frames as they come; a frame of another size begins a new pair.

    Attributes:
        alone: The last frame if it has no partner yet, shown twice, as models pad a video with an odd number of frames.
    """

    def __init__(self) -> None:
        """Start with none."""
        self.alone: LiveItem | None = None

    def add(self, image: npt.NDArray[np.uint8], time_s: float) -> tuple[LiveItem, ...]:
        """Add a frame.

        Args:
            image: Shape (H, W, 3), uint8; kept, so it must not change.
            time_s: Seconds since the session began; not before the last frame's.

        Returns:
            The pairs that are now complete: one for every second frame; a frame whose successor has another size stays
            a pair with itself.
        """
        alone = self.alone
        if alone is not None and alone.images.shape[1:] == image.shape:
            self.alone = None
            return (LiveItem(images=np.stack([alone.images[0], image]), times_s=(alone.times_s[0], time_s)),)
        self.alone = LiveItem(images=np.stack([image, image]), times_s=(time_s, time_s), frames=1)
        return () if alone is None else (alone,)


def pair_up(frames: Iterable[tuple[npt.NDArray[np.uint8], float]]) -> tuple[LiveItem, ...]:
    """Return frames, each with its time, as pairs; the last one may be alone."""
    pairs = Pairs()
    items = [item for image, time_s in frames for item in pairs.add(image, time_s)]
    return (*items, *((pairs.alone,) if pairs.alone else ()))
