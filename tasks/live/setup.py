"""What the sessions of one service share, and how a session differs from what its client requested."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from reelabel.text import escape_controls
from tasks.live.events import Notice

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infra.settings import LiveSettings
    from tasks.live.media import FrameReader
    from tasks.live.messages import SessionConfig
    from tasks.live.model import LiveInfo, LiveModel


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSetup:
    model: LiveModel = field(repr=False)
    info: LiveInfo
    reader: FrameReader = field(repr=False)
    settings: LiveSettings
    template: str


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
