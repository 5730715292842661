"""Settings of logs, metrics and reports, the sections `[log]`, `[metrics]` and `[report]`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from infra.settings.base import SettingsSection


class LogSettings(SettingsSection):
    """Format of log lines."""

    format: Annotated[
        Literal["text", "json"],
        Field(
            description="text is for people; json writes one object per line, with run, plan, shard, stage and job "
            "if known."
        ),
    ] = "text"


class MetricsSettings(SettingsSection):
    """The Prometheus endpoint. The standard variables OTEL_EXPORTER_OTLP_* export metrics by OTLP as well."""

    port: Annotated[
        int | None,
        Field(
            ge=1,
            le=65_526,
            description="Port of a Prometheus endpoint that is open during runs; if it is taken, one of the next nine. "
            "If empty, there is none.",
        ),
    ] = None
    host: Annotated[
        str, Field(min_length=1, description="Address that the endpoint listens on. It requires no login.")
    ] = "127.0.0.1"


class ReportSettings(SettingsSection):
    """The HTML report of a run."""

    at_end: Annotated[
        bool,
        Field(
            description="Write a report to reports/ on the store when a run ends; `reelabel report` does so any time."
        ),
    ] = True
    base_url: Annotated[
        str | None,
        Field(
            pattern=r"^https?://[^@]+$",
            description="The address at which browsers reach the store's folder reports/, such as "
            "https://reports.example.com. Prefect links to reports there; if empty, it does not.",
        ),
    ] = None
