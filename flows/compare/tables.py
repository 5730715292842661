"""Table cells of an evaluation, for the terminal and the Prefect UI."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reelabel.text import escape_controls
from tasks.evaluation.scores import format_p_value

if TYPE_CHECKING:
    from tasks.evaluation.scores import CandidateScore, Difference, Estimate, Evaluation, GroupScore

SPEC_COLUMNS = (
    "candidate",
    "accuracy (95%)",
    "difference (95%)",
    "p (Holm)",
    "calibration error",
    "labels",
    "failures",
    "jobs/s",
    "frames decoded",
    "decode s",
    "MB read",
)
GROUP_COLUMNS = ("task / subtask", "candidate", "jobs", "accuracy (95%)", "difference (95%)", "p (Holm)")
_ALPHA = 0.05


def publish_evaluation(evaluation: Evaluation) -> None:
    """Publish the accuracy of each candidate, and its difference from the baseline."""
    from prefect.artifacts import create_table_artifact  # noqa: PLC0415 - commands import this module earlier

    from flows.run.artifacts import artifact_errors_logged  # noqa: PLC0415

    rows = [dict(zip(SPEC_COLUMNS, spec_cells(spec), strict=True)) for spec in evaluation.specs]
    groups = [*evaluation.tasks, *evaluation.subtasks]
    with artifact_errors_logged():
        create_table_artifact(key="reelabel-evaluation", table=rows, description=f"Compared with {evaluation.baseline}")
        if groups:
            table = [dict(zip(GROUP_COLUMNS, group_cells(group), strict=True)) for group in groups]
            create_table_artifact(key="reelabel-evaluation-by-task", table=table, description="By task and subtask")


def spec_cells(spec: CandidateScore) -> list[str]:
    """Return a candidate's row under SPEC_COLUMNS; unknown figures are empty."""
    cost = spec.cost
    return [
        escape_controls(spec.name),
        share_cell(spec.accuracy),
        *difference_cells(spec.difference),
        "" if spec.calibration_error is None else f"{spec.calibration_error:.3f}",
        f"{spec.labels:,}",
        f"{spec.failures:,}",
        "" if cost.jobs_per_s is None else f"{cost.jobs_per_s:,.1f}",
        "" if cost.frames_decoded is None else f"{cost.frames_decoded:,}",
        "" if cost.decode_s is None else f"{cost.decode_s:,.1f}",
        "" if cost.bytes_read is None else f"{cost.bytes_read / 1e6:,.1f}",
    ]


def group_cells(group: GroupScore) -> list[str]:
    """Return a group's row under GROUP_COLUMNS."""
    return [
        escape_controls(group.title),
        escape_controls(group.spec),
        f"{group.jobs:,}",
        share_cell(group.accuracy),
        *difference_cells(group.difference),
    ]


def share_cell(share: Estimate | None) -> str:
    """Format a share in percent with its interval."""
    return "" if share is None else f"{share.value:.1%} ({share.low * 100:.1f} to {share.high * 100:.1f})"


def difference_cells(difference: Difference | None) -> tuple[str, str]:
    """Format a difference in points with its interval, and its adjusted p-value, starred if below 0.05."""
    if difference is None:
        return "", ""
    points = f"{difference.value * 100:+.1f} ({difference.low * 100:+.1f} to {difference.high * 100:+.1f})"
    star = "*" if difference.p_holm < _ALPHA else ""
    return points, format_p_value(difference.p_holm) + star
