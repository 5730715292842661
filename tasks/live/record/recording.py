"""How a session is recorded: the interface, and the one that writes rows and frame files."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from tasks.live.messages import ProtocolError, ResponseDone, Sampling, SessionConfig

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from tasks.live.arrivals import Asked
    from tasks.live.kept import Seen
    from tasks.live.messages import SessionStats
    from tasks.live.model import LiveInfo
    from tasks.live.record.recorder import Recorder, SessionRecord

# Columns of a query's row that are as in the event.
_OF_ANSWER = {
    *("probabilities", "margin", "first_token_ms", "total_ms"),
    *("prompt_tokens", "cached_tokens", "output_tokens"),
}
_NO_TOKENS = {"prompt_tokens": 0, "cached_tokens": 0, "output_tokens": 0}


class Record(Protocol):
    """Where a session leaves its frames and answers; all but `keep` may block."""

    def keep(self, *, number: int, time_s: float, image: npt.NDArray[np.uint8]) -> None:
        """Take a kept frame; never blocks."""

    def answer(self, asked: Asked, seen: Seen, outcome: ResponseDone | ProtocolError) -> None:
        """Write the row of a query that has ended.

        Raises:
            TransientError: It cannot be written now.
        """

    def close(self, reason: str, stats: SessionStats) -> None:
        """Write what remains.

        Raises:
            TransientError: It cannot be written now.
        """


@dataclass(frozen=True, slots=True)
class Recording:
    """The record of one session, from what its client is told."""

    record: SessionRecord
    model: str

    def keep(self, *, number: int, time_s: float, image: npt.NDArray[np.uint8]) -> None:
        """Take a kept frame."""
        self.record.keep(number=number, time_s=time_s, image=image)

    def answer(self, asked: Asked, seen: Seen, outcome: ResponseDone | ProtocolError) -> None:
        """Write the row of a query that has ended."""
        row: dict[str, Any] = {
            "query": asked.number,
            "question": asked.query.text,
            "choices": asked.query.choices,
            "asked_s": seen.asked_s,
            "frames": seen.frames,
            "last_frame_s": seen.last_frame_s if seen.prefix else None,
            "audio_s": seen.prefix.audio_s if seen.prefix else 0.0,
            "model": self.model,
        }
        if isinstance(outcome, ResponseDone):
            row |= outcome.model_dump(include=_OF_ANSWER) | {"answer": outcome.text, "choice_index": outcome.choice}
        else:
            row |= _NO_TOKENS | {"code": outcome.code, "message": outcome.message, "total_ms": asked.waited_ms}
        self.record.answer(row)

    def close(self, reason: str, stats: SessionStats) -> None:
        """Write what remains."""
        self.record.close(
            reason=reason,
            frames_received=stats.frames,
            frames_similar=stats.similar,
            frames_evicted=stats.evicted,
            audio_s=stats.audio_s,
        )


def open_recording(recorder: Recorder, info: LiveInfo, session_id: str, config: SessionConfig) -> Recording:
    """Begin the record of a session.

    Raises:
        DatabaseUnavailableError: Postgres is unavailable.
    """
    left_out = {"type", "sampling", "sampling_params_list", "persistent", *(config.model_extra or ())}
    asked = config.model_dump(mode="json", exclude_none=True, exclude=left_out)
    sampling = config.answers.model_dump(include={*Sampling.model_fields}, exclude_none=True)
    record = recorder.open(
        UUID(session_id),
        model=info.model,
        config=asked | {"sampling": sampling},
        versions=info.versions,
        host=socket.gethostname(),
    )
    return Recording(record, info.model)
