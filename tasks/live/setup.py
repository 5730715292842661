"""What the sessions of one service share, and what a session may ask for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from reelabel.text import escape_controls
from tasks.live.events import Notice
from tasks.live.messages import ProtocolError, SessionConfig
from tasks.live.window import WindowRule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infra.settings import LiveSettings
    from tasks.live.media import FrameReader
    from tasks.live.model import LiveInfo, LiveModel

_MAX_FRAMES = 50  # that are seen by default, as published


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSetup:
    """What the sessions of one service share."""

    model: LiveModel = field(repr=False)
    info: LiveInfo
    reader: FrameReader = field(repr=False)
    settings: LiveSettings
    template: str


def check_config(config: SessionConfig, setup: LiveSetup) -> None:
    """Check that a session may be as its client asks.

    Raises:
        ProtocolError: It may not.
    """
    most = setup.settings.max_window_frames
    if config.window is not None and 2 * config.window + config.sink > most:
        raise ProtocolError(
            f"With a window of {config.window:,} frames, a query sees up to twice as many and the sink; "
            f"{most:,} are allowed.",
            code="limit_reached",
            is_fatal=True,
        )


def differences(config: SessionConfig, setup: LiveSetup) -> Iterator[Notice]:
    """Yield notices for a client whose session differs from what it requested."""
    served = setup.info.model
    if config.model not in {None, served}:
        text = f"The model {escape_controls(config.model or '')} is not served here; {served} answers."
        yield Notice(code="other_model", message=text)
    if "text" not in config.modalities and not setup.info.produces_speech:
        yield Notice(code="no_speech", message=f"The model {served} does not speak; answers come as text.")


def produces_speech(config: SessionConfig, setup: LiveSetup) -> bool:
    return "audio" in config.modalities and setup.info.produces_speech


def window_rule(config: SessionConfig) -> WindowRule:
    if config.window_s is not None:
        return WindowRule(sink=config.sink, size=config.window_s, unit="seconds")
    if config.window is not None:
        return WindowRule(sink=config.sink, size=config.window)
    most = config.max_frames or _MAX_FRAMES
    sink = min(config.sink, most // 4)
    return WindowRule(sink=sink, size=max(2, (most - sink) // 2))


def window_full(settings: LiveSettings) -> ProtocolError:
    return ProtocolError(
        f"A query would see more than {settings.max_window_frames:,} frames and spans of audio, which is the limit; "
        "configure a smaller window.",
        code="limit_reached",
        is_fatal=True,
    )
