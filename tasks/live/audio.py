"""The audio of a session as it arrives: checked, and placed on the session's time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from reelabel_engine.live.items import AUDIO_HZ
from tasks.live.messages import ProtocolError
from tasks.live.window import TOLERANCE_S

if TYPE_CHECKING:
    import numpy.typing as npt

    from tasks.live.frame_window import FrameWindow
    from tasks.live.inbox import Audio
    from tasks.live.model import LiveInfo

MAX_CHUNK_S = 30.0
_SAMPLE_BYTES = 2
_MAX_AHEAD_S = 60.0  # of the samples, before the time at which they arrive
_LATE_S = 10.0  # after frames that the model has seen
# Files, which are no samples.
_CONTAINERS = {b"RIFF": "WAV", b"OggS": "Ogg", b"fLaC": "FLAC", b"ID3": "MP3", b"\x1a\x45\xdf\xa3": "WebM"}
_FORMAT = "16-bit little-endian PCM of one channel at 16 kHz"


def read_samples(data: bytes, info: LiveInfo) -> npt.NDArray[np.int16]:
    """Return the samples of a chunk; shape (N,).

    Raises:
        ProtocolError: It is no such audio, or the model takes none.
    """
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
    return samples


class AudioTrack:
    """Places the audio of one session, chunk after chunk."""

    def __init__(self, window: FrameWindow) -> None:
        self._window = window
        self._end_s: float | None = None

    def add(self, audio: Audio) -> bool:
        """Add audio to the window; return whether there is more for the model to read.

        Raises:
            ProtocolError: It overlaps with other audio, or comes too early or too late.
        """
        start_s = self._start_s(audio)
        samples = audio.samples[max(0, round(-start_s * AUDIO_HZ)) :]  # what was before the first frame
        if not len(samples):
            return False
        self._end_s = start_s + audio.seconds
        return self._window.add_audio(audio, samples, max(0.0, start_s))

    def _start_s(self, audio: Audio) -> float:
        start_s, end_s, last_s = self._window.start_of(audio), self._end_s, self._window.last_s
        if audio.time_s is None:
            start_s = max(0.0, start_s) if end_s is None else max(start_s, end_s)
            if start_s + audio.seconds - self._window.clock_s(audio) > _MAX_AHEAD_S:
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
        if last_s is not None and start_s + audio.seconds < last_s - _LATE_S:
            raise _refuse(
                f"The audio of {start_s:.1f} seconds is too late, since frames up to {last_s:.1f} seconds were taken; "
                "send audio and frames side by side."
            )
        return start_s


def _refuse(message: str) -> ProtocolError:
    return ProtocolError(message, code="audio_refused")
