"""Where results are exported and reported, and how long they are kept."""

from __future__ import annotations

import re
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from infra.settings.types import SettingsSection


def _require_format(text: str) -> str:
    if not re.fullmatch(r"parquet|delta|iceberg:[^.:]+(\.[^.:]+)+", text):
        raise ValueError("must be parquet, delta or iceberg:CATALOG.NAMESPACE, such as iceberg:lake.reelabel")
    return text


class ResultsSettings(SettingsSection):
    """Export of the rows of runs, in addition to the database."""

    export_uri: str | None = Field(None, pattern=r"^(s3|file)://.+")
    """s3://bucket/prefix or file:///folder, to which the rows of each run are written when it ends; if unset, none
    are."""
    export_format: Annotated[str, AfterValidator(_require_format)] = "parquet"
    """parquet writes files by dataset and date; delta writes Delta Lake tables (needs the extra lake);
    iceberg:CATALOG.NAMESPACE writes Iceberg tables (needs the extra iceberg) in a catalog that PyIceberg's own settings
    configure, and only the list of runs goes to export_uri."""

    @model_validator(mode="after")
    def _lists_runs(self) -> Self:
        if self.export_format != "parquet" and self.export_uri is None:
            raise ValueError(f"export_format {self.export_format} needs export_uri, where runs are listed")
        return self

    @property
    def lake(self) -> str | None:
        """`delta` or `iceberg`, if rows are written to tables of such a lake."""
        kind = self.export_format.partition(":")[0]
        return kind if self.export_uri and kind != "parquet" else None

    @property
    def iceberg_namespace(self) -> str:
        """CATALOG.NAMESPACE of Iceberg tables; empty for others."""
        return self.export_format.partition(":")[2]


class ReportSettings(SettingsSection):
    """The HTML report of a run."""

    at_end: bool = True
    """Write a report to reports/ on the store when a run ends; `reelabel report` does so any time."""
    base_url: str | None = Field(None, pattern=r"^https?://[^@]+$")
    """The address at which browsers reach the store's folder reports/, such as https://reports.example.com. Prefect
    links to reports there; if unset, it does not."""


class RetentionSettings(SettingsSection):
    """What the deployment maintain/daily removes; limits left empty remove nothing."""

    frames_days: float | None = Field(None, gt=0, le=36_500)
    """Days to keep cached frames; they are extracted again if needed."""
    frames_bytes: int | None = Field(None, ge=0)
    """Maximum bytes of cached frames; the oldest are removed first."""
    results_days: float | None = Field(None, gt=0, le=36_500)
    """Days to keep labels and failures, from when they were written."""
    history_days: float | None = Field(90, gt=0, le=36_500)
    """Days to keep labels that were replaced, for `reelabel diff`."""
    reports_days: float | None = Field(365, gt=0, le=36_500)
    """Days to keep reports, on the store and in home; `reelabel report` recreates them."""
    live_days: float | None = Field(None, gt=0, le=36_500)
    """Days to keep live sessions, with their frames and queries, after they were last seen."""
