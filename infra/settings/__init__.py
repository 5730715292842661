"""Settings: `REELABEL_*` environment variables over `reelabel.toml` over defaults."""

from infra.settings.model import PromptOptions, VideoPruningRate
from infra.settings.sections import (
    CONFIG_VARIABLE,
    DatabaseSettings,
    PrefectSettings,
    RunSettings,
    Settings,
    WebSettings,
    load_settings,
)
from infra.settings.store import StoreSettings

__all__ = [
    "CONFIG_VARIABLE",
    "DatabaseSettings",
    "PrefectSettings",
    "PromptOptions",
    "RunSettings",
    "Settings",
    "StoreSettings",
    "VideoPruningRate",
    "WebSettings",
    "load_settings",
]
