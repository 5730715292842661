"""What a run says at its end of videos whose keyframes may not have been enough."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefect import get_run_logger

from tasks.video.verdict_words import READ_MORE, verdict_lines

if TYPE_CHECKING:
    from collections.abc import Mapping


def warn_of_verdicts(verdicts: Mapping[str, int]) -> list[str]:
    """Warn of them in the run's log; gives the sentences of `verdict_lines`."""
    warnings = verdict_lines(verdicts)
    for warning in warnings:
        get_run_logger().warning("%s; see %s.", warning, READ_MORE)
    return warnings
