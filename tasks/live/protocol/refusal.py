"""What a client is told of a message that is at fault, or cannot be taken now."""

from __future__ import annotations

from typing import Literal, TypeAlias

from reelabel.errors import ReelabelError

ErrorCode: TypeAlias = Literal[
    "invalid_message",
    "unexpected_message",
    "config_timeout",
    "audio_unsupported",
    "audio_refused",
    "frame_unreadable",
    "frame_too_large",
    "no_frames",
    "too_many_queries",
    "prompt_too_long",
    "query_refused",
    "query_failed",
    "engine_lost",
    "cancelled",
    "deadline_exceeded",
    "too_many_sessions",
    "limit_reached",
    "idle_timeout",
    "resume_refused",
    "unavailable",
    "internal",
]


class MessageRefusedError(ReelabelError):
    """What a client sent is at fault, or cannot be taken now.

    Attributes:
        is_fatal: Whether the session ends by it.
    """

    code: ErrorCode  # type: ignore[misc]  # of this refusal, not of the class

    def __init__(self, message: str, *, code: ErrorCode, is_fatal: bool = False) -> None:
        """Store what the client is told."""
        super().__init__(message)
        self.code = code
        self.is_fatal = is_fatal
