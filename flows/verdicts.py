"""Warnings at the end of a run about videos that keyframes may not cover."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefect import get_run_logger

from tasks.video.verdict_words import DOCS_PAGE, coverage_warnings

if TYPE_CHECKING:
    from collections.abc import Mapping


def warn_of_coverage(verdicts: Mapping[str, int]) -> list[str]:
    """Log a warning for each reason; return the sentences of `coverage_warnings`."""
    warnings = coverage_warnings(verdicts)
    for warning in warnings:
        get_run_logger().warning("%s; see %s.", warning, DOCS_PAGE)
    return warnings
