"""Warnings at the end of a run about videos that keyframes may not cover."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefect import get_run_logger

from tasks.video.verdict_words import READ_MORE, verdict_lines

if TYPE_CHECKING:
    from collections.abc import Mapping


def warn_of_verdicts(verdicts: Mapping[str, int]) -> list[str]:
    """Log a warning for each reason; return the sentences of `verdict_lines`."""
    warnings = verdict_lines(verdicts)
    for warning in warnings:
        get_run_logger().warning("%s; see %s.", warning, READ_MORE)
    return warnings
