"""Packages that only some settings and options need: extras of the application."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infra.program import APPLICATION
from reelabel.optional import require

if TYPE_CHECKING:
    from types import ModuleType


def require_deltalake() -> ModuleType:
    """Import what writes Delta Lake tables; ConfigurationError if it is not installed."""
    return require("deltalake", extra="lake", of=APPLICATION, purpose="results.export_format delta")
