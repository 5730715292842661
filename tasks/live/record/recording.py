"""How a session is recorded: the interface, and the one that writes rows and frame files."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from tasks.live.protocol import MessageRefusedError, ResponseDone, SessionConfig
from tasks.live.record.recorder import Answered, FrameCounts, Opened

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from tasks.live.kept import Seen
    from tasks.live.model import LiveInfo
    from tasks.live.protocol import SessionStats, VideoQuery
    from tasks.live.record.recorder import Recorder, SessionRecord


class Record(Protocol):
    """Where a session leaves its frames and answers; all but `keep` may block."""

    def keep(self, *, number: int, time_s: float, image: npt.NDArray[np.uint8]) -> None:
        """Take a kept frame; never blocks."""

    def answer(self, query: VideoQuery, seen: Seen, outcome: ResponseDone | MessageRefusedError) -> None:
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

    def answer(self, query: VideoQuery, seen: Seen, outcome: ResponseDone | MessageRefusedError) -> None:
        """Write the row of a query that has ended."""
        done = outcome if isinstance(outcome, ResponseDone) else None
        refused = outcome if isinstance(outcome, MessageRefusedError) else None
        self.record.answer(
            Answered(
                query=seen.query,
                question=query.text,
                choices=query.choices,
                answer=done.text if done else None,
                probabilities=done.probabilities if done else None,
                code=refused.code if refused else None,
                message=refused.message if refused else None,
                asked_s=seen.asked_s,
                frames=seen.frames,
                last_frame_s=seen.last_frame_s if seen.prefix else None,
                audio_s=seen.prefix.audio_s if seen.prefix else 0.0,
                prompt_tokens=done.prompt_tokens if done else 0,
                cached_tokens=done.cached_tokens if done else 0,
                output_tokens=done.output_tokens if done else 0,
                first_token_ms=done.first_token_ms if done else None,
                total_ms=done.total_ms if done else seen.waited_ms,
                model=self.model,
            )
        )

    def close(self, reason: str, stats: SessionStats) -> None:
        """Write what remains."""
        counts = FrameCounts(
            received=stats.frames,
            similar=stats.similar,
            evicted=stats.evicted,
            audio_s=stats.audio_s,
        )
        self.record.close(reason=reason, counts=counts)


def open_recording(recorder: Recorder, info: LiveInfo, session_id: str, config: SessionConfig) -> Recording:
    """Begin the record of a session.

    Raises:
        DatabaseUnavailableError: Postgres is unavailable.
    """
    asked = config.model_dump(mode="json", exclude_none=True, exclude={"type", "sampling", "sampling_params_list"})
    opened = Opened(
        session_id=UUID(session_id),
        model=info.model,
        config=asked | {"sampling": config.answers.model_dump(exclude_none=True)},
        versions=info.versions,
        host=socket.gethostname(),
    )
    return Recording(recorder.open(opened), info.model)
