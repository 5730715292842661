"""Packages that only some settings and options need: extras of the application."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from infra.program import APPLICATION
from reelabel.optional import require

if TYPE_CHECKING:
    from types import ModuleType


# Package and extra by kind of lake.
LAKES = {"delta": ("deltalake", "lake"), "iceberg": ("pyiceberg", "iceberg")}


def require_lake(lake: str) -> ModuleType:
    """Import what writes the tables of a lake; ConfigurationError if it is not installed."""
    package, extra = LAKES[lake]
    return require(package, extra=extra, of=APPLICATION, purpose=f"results.export_format {lake}")


def require_mlflow() -> ModuleType:
    """Import MLflow, without its reports of usage; ConfigurationError if it is not installed."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    return require("mlflow", extra="mlflow", of=APPLICATION, purpose="Logging to MLflow")
