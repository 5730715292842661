"""Settings of what a run says of itself, the sections `[log]`, `[metrics]` and `[report]`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from infra.section import Section


class LogSettings(Section):
    """What log lines look like."""

    format: Annotated[
        Literal["text", "json"],
        Field(description="text for people; json is one object a line, with run, shard and job where known."),
    ] = "text"


class MetricsSettings(Section):
    """Where metrics can be read; the standard variables OTEL_EXPORTER_OTLP_* send them elsewhere, too."""

    port: Annotated[
        int | None,
        Field(
            ge=1,
            le=65_526,
            description="A Prometheus endpoint at this port, or where that is taken at one of the next nine, "
            "while a run goes on; empty is none.",
        ),
    ] = None
    host: Annotated[
        str, Field(min_length=1, description="Address that it listens on; whoever reaches it needs no login.")
    ] = "127.0.0.1"


class ReportSettings(Section):
    """The page that shows a run."""

    at_end: Annotated[
        bool, Field(description="Write a run's page to reports/ on the store as it ends; `reelabel report` always can.")
    ] = True
    base_url: Annotated[
        str | None,
        Field(
            pattern=r"^https?://[^@]+$",
            description="Address by which browsers reach the store's folder reports/, such as "
            "https://reports.example.com; Prefect then links to each run's page. Empty links to none.",
        ),
    ] = None
