"""How the audio of a session is taken: checked, placed on the session's time, and kept for the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from reelabel_engine.live.items import AUDIO_HZ
from tasks.live.items import TOLERANCE_S
from tasks.live.messages import ErrorEvent, ProtocolError
from tasks.live.setup import window_full

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from tasks.live.arrivals import Audio
    from tasks.live.kept import KeptFrames
    from tasks.live.outbox import Outbox
    from tasks.live.setup import LiveSetup

MAX_CHUNK_S = 30.0
_SAMPLE_BYTES = 2
_MAX_AHEAD_S = 60.0  # of the samples, before the time at which they arrive
_LATE_S = 10.0  # after frames that the model has seen
# Files, which are no samples.
_CONTAINERS = {b"RIFF": "WAV", b"OggS": "Ogg", b"fLaC": "FLAC", b"ID3": "MP3", b"\x1a\x45\xdf\xa3": "WebM"}
_FORMAT = "16-bit little-endian PCM of one channel at 16 kHz"


class Hearing:
    """Takes the audio of one session.

    Attributes:
        seconds: How much there was.
    """

    def __init__(self, setup: LiveSetup, kept: KeptFrames, outbox: Outbox, *, on_limit: Callable[[], None]) -> None:
        """Prepare.

        Args:
            setup: With the model, and the limits.
            kept: Where the audio goes.
            outbox: Where the client is told of audio that comes at the wrong time.
            on_limit: Called when a limit is reached and the client has been told.
        """
        self.seconds = 0.0
        self._setup, self._kept, self._outbox, self._on_limit = setup, kept, outbox, on_limit
        self._end_s: float | None = None

    def check(self, data: bytes) -> npt.NDArray[np.int16]:
        """Return the samples of a chunk that has arrived.

        Raises:
            ProtocolError: It is no such audio, or the model takes none.
        """
        info = self._setup.info
        if not info.takes_audio:
            raise ProtocolError(
                f"The model {info.model} takes no audio, unlike models of the family Qwen2.5-Omni; send frames only.",
                code="audio_unsupported",
            )
        kind = next((name for start, name in _CONTAINERS.items() if data.startswith(start)), None)
        if kind:
            raise _refuse(f"The audio is a file ({kind}); send its samples alone, as {_FORMAT}.")
        if len(data) % _SAMPLE_BYTES or not data:
            raise _refuse(f"The audio has {len(data):,} bytes, which are no whole samples; send {_FORMAT}.")
        samples = np.frombuffer(data, "<i2").astype(np.int16)
        seconds = len(samples) / AUDIO_HZ
        if seconds > MAX_CHUNK_S:
            raise _refuse(f"The audio has {seconds:.1f} seconds; a chunk has at most {MAX_CHUNK_S:g}.")
        self.seconds += seconds
        return samples

    def take(self, audio: Audio) -> bool:
        """Take audio; return whether there is more for the model to read. The client is told if it is not taken."""
        try:
            start_s = self._start_s(audio)
        except ProtocolError as refused:
            self._outbox.put(ErrorEvent.of(refused))
            return False
        samples = audio.samples[max(0, round(-start_s * AUDIO_HZ)) :]  # what was before the first frame
        if not len(samples):
            return False
        self._end_s = start_s + audio.seconds
        has_more = self._kept.hear(audio, samples, max(0.0, start_s))
        if self._kept.held <= self._setup.settings.max_window_frames:
            return has_more
        self._outbox.put(ErrorEvent.of(window_full(self._setup.settings)))
        self._on_limit()
        return False

    def _start_s(self, audio: Audio) -> float:
        """Return when audio begins, on the session's time.

        Raises:
            ProtocolError: It overlaps with other audio, or comes too early or too late.
        """
        start_s = self._kept.start_of(audio)
        end_s = self._end_s
        if audio.time_s is None:
            start_s = max(0.0, start_s) if end_s is None else max(start_s, end_s)
            if start_s + audio.seconds - self._kept.clock_s(audio) > _MAX_AHEAD_S:
                raise _refuse(
                    f"There is more audio than time: it is more than {_MAX_AHEAD_S:g} seconds ahead of its arrival; "
                    f"send {_FORMAT} as it is recorded, or say time_s."
                )
            return start_s
        if end_s is not None and start_s < end_s - TOLERANCE_S:
            raise _refuse(
                f"The audio begins at {start_s:.1f} seconds, before the end of the last at {end_s:.1f}; send it in "
                f"order, as {_FORMAT}."
            )
        if self._kept.last_s is not None and start_s + audio.seconds < self._kept.last_s - _LATE_S:
            raise _refuse(
                f"The audio of {start_s:.1f} seconds is too late, since frames up to {self._kept.last_s:.1f} seconds "
                "were taken; send audio and frames side by side."
            )
        return start_s


def _refuse(message: str) -> ProtocolError:
    return ProtocolError(message, code="audio_refused")
