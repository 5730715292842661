"""Packages that only some settings and options need: extras of the application."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from infra.program import APPLICATION
from reelabel.optional import require

if TYPE_CHECKING:
    from types import ModuleType


def require_deltalake() -> ModuleType:
    """Import what writes Delta Lake tables; ConfigurationError if it is not installed."""
    return require("deltalake", extra="lake", of=APPLICATION, purpose="results.export_format delta")


def require_pyiceberg() -> ModuleType:
    """Import what writes Iceberg tables; ConfigurationError if it is not installed."""
    return require("pyiceberg", extra="iceberg", of=APPLICATION, purpose="results.export_format iceberg")


def require_mlflow() -> ModuleType:
    """Import MLflow, without its reports of usage; ConfigurationError if it is not installed."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    return require("mlflow", extra="mlflow", of=APPLICATION, purpose="Logging to MLflow")
