"""What the sessions of one service share, and what a session may ask for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from reelabel.text import printable
from tasks.live.protocol import MessageRefusedError, Notice, SessionConfig
from tasks.live.window import WindowRule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tasks.live.frames import FrameReader
    from tasks.live.model import LiveInfo, LiveModel

_DEFAULT_WINDOW = 25  # as published: at most 50 frames are seen


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveLimits:
    """What ends a session, or refuses a message.

    Attributes:
        idle_s: Seconds without a message, while no query is in progress.
        total_s: Seconds in all.
        resume_s: Seconds for which a session waits for its client to come back.
        max_frames: Frames sent.
        max_bytes: Bytes of frames and audio sent.
        max_audio_s: Seconds of audio sent.
        max_pixels: Pixels decoded in all.
        max_frame_bytes: Bytes of one frame.
        max_native_px: Pixels of one frame as it is sent.
        max_window_frames: Frames that a query sees, and spans of audio that it hears.
        max_message_bytes: Bytes of one message.
    """

    idle_s: float = 60.0
    total_s: float = 86_400.0
    resume_s: float = 30.0
    max_frames: int = 1_000_000
    max_bytes: int = 64 * 1024**3
    max_audio_s: float = 86_400.0
    max_pixels: int = 1_000_000_000_000
    max_frame_bytes: int = 8 * 1024**2
    max_native_px: int = 16_000_000
    max_window_frames: int = 2048
    max_message_bytes: int = 16 * 1024**2


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSetup:
    """What the sessions of one service share.

    Attributes:
        model: What answers.
        info: Its facts.
        reader: What decodes frames.
        limits: What ends a session.
        template: Prompt template of queries with choices.
    """

    model: LiveModel = field(repr=False)
    info: LiveInfo
    reader: FrameReader = field(repr=False)
    limits: LiveLimits
    template: str


def check_config(config: SessionConfig, setup: LiveSetup) -> None:
    """Check that a session may be as its client asks.

    Raises:
        MessageRefusedError: It may not.
    """
    limits = setup.limits
    if config.window is not None and 2 * config.window + config.sink > limits.max_window_frames:
        raise MessageRefusedError(
            f"With a window of {config.window:,} frames, a query sees up to twice as many and the sink; "
            f"{limits.max_window_frames:,} are allowed.",
            code="limit_reached",
            is_fatal=True,
        )


def differences(config: SessionConfig, setup: LiveSetup) -> Iterator[Notice]:
    """Yield what a client is told if its session is otherwise than it asks."""
    served = setup.info.model
    if config.model not in {None, served}:
        text = f"The model {printable(config.model or '')} is not served here; {served} answers."
        yield Notice(code="other_model", message=text)
    if "text" not in config.modalities and not setup.info.speaks:
        yield Notice(code="no_speech", message=f"The model {served} does not speak; answers come as text.")


def speaks(config: SessionConfig, setup: LiveSetup) -> bool:
    """Return whether answers come in speech, too."""
    return "audio" in config.modalities and setup.info.speaks


def window_rule(config: SessionConfig) -> WindowRule:
    """Return how much of the stream a query sees."""
    if config.window_s is not None:
        return WindowRule(sink=config.sink, size=config.window_s, unit="seconds")
    size = config.window or (max(2, config.max_frames // 2) if config.max_frames else _DEFAULT_WINDOW)
    return WindowRule(sink=config.sink, size=size)


def limit_reached(what: str) -> MessageRefusedError:
    """Return the refusal that ends a session which has sent more than it may."""
    return MessageRefusedError(
        f"The session has sent more than {what}, which is the limit; start another one.",
        code="limit_reached",
        is_fatal=True,
    )


def window_full(limits: LiveLimits) -> MessageRefusedError:
    """Return the refusal that ends a session whose window holds more than it may."""
    return MessageRefusedError(
        f"A query would see more than {limits.max_window_frames:,} frames and spans of audio, which is the limit; "
        "configure a smaller window.",
        code="limit_reached",
        is_fatal=True,
    )
