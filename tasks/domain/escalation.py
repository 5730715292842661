"""Merge the answers of a job that may be asked twice: on keyframes, then on a dense sampler if the margin is low."""

from __future__ import annotations

from dataclasses import replace

from reelabel.record import merge_records
from tasks.domain.outcome import Failure, FirstAnswer, JobResult


def needs_escalation(result: JobResult, *, below: float) -> bool:
    """Check whether to ask a job again; never if a dense sampler was used already."""
    return result.provenance.sampler == "keyframes" and result.answer.margin < below


def merge_answers(first: JobResult, second: JobResult | Failure | None, *, below: float) -> JobResult:
    """Merge both outcomes into one row: the second answer if it is about the same video, else the first.

    Args:
        first: The answer on keyframes.
        second: The outcome when the job was asked again; None if it was not.
        below: Margin below which jobs are asked again.
    """
    asked_first = FirstAnswer(label=first.label, margin=first.answer.margin, below=below)
    if second is None:
        return replace(first, first=asked_first)
    if isinstance(second, JobResult) and second.provenance.fingerprint == first.provenance.fingerprint:
        return replace(
            second,
            answer=merge_records(first.answer, second.answer),
            provenance=merge_records(first.provenance, second.provenance),
            first=asked_first,
            routed_by="margin",
        )
    why = second.message if isinstance(second, Failure) else "the video was replaced meanwhile"
    note = "; ".join(filter(None, (first.provenance.decode_note, f"not asked again: {why}")))
    return replace(first, provenance=replace(first.provenance, decode_note=note), first=asked_first)
