"""What the sessions of one service share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
    system_prompt: str | None = None  # of sessions without their own

    def produces_speech(self, config: SessionConfig) -> bool:
        return "audio" in config.modalities and self.info.produces_speech
