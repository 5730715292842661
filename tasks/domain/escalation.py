"""Merge the answers of a job that may be asked twice: on keyframes, then on a dense sampler if the margin is low."""

from __future__ import annotations

from dataclasses import replace

from tasks.domain.outcome import Failure, FirstAnswer, JobResult

_TIMES = ("fetch_ms", "decode_ms", "cache_write_ms", "cache_read_ms")
_COUNTS = ("prompt_tokens", "cached_tokens", "preprocess_ms", "inference_ms")


def needs_escalation(result: JobResult, *, below: float) -> bool:
    """Check whether to ask a job again; never if a dense sampler was used already."""
    return result.sampler == "keyframes" and result.answer.margin < below


def merge_answers(first: JobResult, second: JobResult | Failure | None, *, below: float) -> JobResult:
    """Merge both outcomes into one row: the second answer if it is about the same video, else the first.

    Args:
        first: The answer on keyframes.
        second: The outcome when the job was asked again; None if it was not.
        below: Margin below which jobs are asked again.
    """
    if second is None:
        return replace(first, first=_first(first, below))
    if isinstance(second, JobResult) and second.source_fingerprint == first.source_fingerprint:
        return _asked_twice(first, second, below=below)
    why = second.message if isinstance(second, Failure) else "the video was replaced meanwhile"
    notes = "; ".join(filter(None, (first.decode_note, f"not asked again: {why}")))
    return replace(first, first=_first(first, below), decode_note=notes)


def _asked_twice(first: JobResult, second: JobResult, *, below: float) -> JobResult:
    """Merge two answers: the label of the second, and the cost of both."""
    answer = replace(
        second.answer,
        **{name: getattr(first.answer, name) + getattr(second.answer, name) for name in _COUNTS},
    )
    return replace(
        second,
        answer=answer,
        first=_first(first, below),
        routed_by="margin",
        frames_decoded=first.frames_decoded + second.frames_decoded,
        bytes_fetched=first.bytes_fetched + second.bytes_fetched,
        **{name: getattr(first, name) + getattr(second, name) for name in _TIMES},
    )


def _first(result: JobResult, below: float) -> FirstAnswer:
    return FirstAnswer(label=result.label, margin=result.answer.margin, below=below)
