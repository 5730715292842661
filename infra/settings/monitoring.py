"""Logs, metrics and notifications of runs."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, SecretStr

from infra.settings.types import SettingsSection


class NotifySettings(SettingsSection):
    """Where to report runs that fail or stall."""

    webhook_url: SecretStr | None = None
    """Webhook to which {"text": ...} is posted, as for Slack; if empty, nothing is sent."""


class LogSettings(SettingsSection):
    """Format of log lines."""

    format: Literal["text", "json"] = "text"
    """text is for people; json writes one object per line, with run, plan, shard, stage and job if known."""


class MetricsSettings(SettingsSection):
    """The Prometheus endpoint. The standard variables OTEL_EXPORTER_OTLP_* export metrics and traces as well."""

    port: int | None = Field(None, ge=1, le=65_526)
    """Port of a Prometheus endpoint during runs; if it is taken, one of the next nine. If empty, there is none."""
    host: str = Field("127.0.0.1", min_length=1)
    """Address that the endpoint listens on. It requires no login."""
