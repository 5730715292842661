"""Describes a survey in sentences and figures."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

from reelabel.sampling.spec import EVERY
from reelabel.text import pluralize
from tasks.domain.cost import format_price
from tasks.domain.coverage import DOCS_PAGE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tasks.evaluation.scores import Estimate
    from tasks.survey.survey import Survey

_UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB")
_STEP = 1000.0
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86_400
_LARGE = 100


def title(survey: Survey) -> str:
    clips = "" if survey.clips == survey.videos else f" in {pluralize(survey.clips, 'clip')}"
    return f"{survey.manifest}: {pluralize(survey.jobs, 'job')} on {pluralize(survey.videos, 'video')}{clips}"


def headlines(survey: Survey) -> Iterator[str]:
    """Yield sentences, the most important first."""
    if survey.is_sample:
        until = " until the time limit" if survey.stopped_early else ""
        seen = pluralize(survey.seen, "clip")
        yield f"Estimated from {seen}, drawn at random{until} and surveyed in {duration(survey.took_s)}."
    else:
        seen = "The one clip was" if survey.seen == 1 else f"All {survey.seen:,} clips were"
        yield f"{seen} surveyed in {duration(survey.took_s)}."
    one, uncovered, unlisted = survey.one_keyframe, survey.not_covered, survey.unlisted
    answers = ": answers about anything later are guesses" if one.seen else ""
    yield f"{of_clips(one.clips, survey)} {_have(one.clips)} one keyframe{answers}."
    if uncovered.seen:
        reasons = ", ".join(f"{count(share.clips)} {share.name}" for share in survey.reasons if share.seen)
        yield f"{of_clips(uncovered.clips, survey)} may not be covered by their keyframes: {reasons}."
        yield f"auto would send {count(uncovered.clips)} to the dense sampler; see {DOCS_PAGE}."
    if unlisted.seen:
        have = _have(unlisted.clips)
        yield f"{of_clips(unlisted.clips, survey)} {have} no index of keyframes: a run reads them whole."
    if survey.hdr.seen:
        how = "with unchanged pixel values" if survey.sampling.get("hdr") else "tone-mapped to SDR"
        are = "is" if _have(survey.hdr.clips) == "has" else "are"
        yield f"{of_clips(survey.hdr.clips, survey)} {are} HDR, and shown {how}."
    yield from unusable(survey)


def unusable(survey: Survey) -> Iterator[str]:
    if survey.failed:
        failed = ", ".join(f"{count(share.clips)} {share.name}" for share in survey.failed)
        yield f"Cannot be used, according to their indexes: {failed}."


def of_clips(estimate: Estimate, survey: Survey) -> str:
    return f"{count(estimate)} of {pluralize(survey.clips, 'clip')}"


def _have(estimate: Estimate) -> str:
    return "has" if estimate.value == estimate.high == 1 else "have"


def amount(survey: Survey) -> Iterator[tuple[str, str]]:
    """Yield the costs of a run without a cache, as names and values."""
    sampler, frames = survey.sampling["sampler"], survey.sampling["num_frames"]
    yield "sampler", f"{sampler}, {'every frame' if frames == EVERY else pluralize(frames, 'frame')}"
    yield "dense sampler", count(survey.dense.clips) + " clips"
    for name, estimate, shown in (
        ("chunks", survey.chunks, number),
        ("frames to decode", survey.frames, number),
        ("bytes to read", survey.read_bytes, size),
        ("of videos with", survey.size_bytes, size),
        ("that last", survey.length_s, duration),
        ("extraction", survey.extract_s, duration),
        ("extraction costs", survey.extract_cost, format_price),
        ("cache", survey.cache_bytes, size),
    ):
        if estimate:
            yield name, between(estimate, shown)
    if survey.rates:
        rates = survey.rates
        decoded = f"on {pluralize(rates.clips, 'clip')} decoded here: {rates.decode_ms_per_frame:.2f} ms a frame"
        yield "measured", f"{decoded}, {rates.processes:,} at once"


def count(estimate: Estimate) -> str:
    """Return a number of clips, with its interval unless it is exact: `26`, or `1,300 (1,210 to 1,398)`."""
    return between(estimate, number)


def between(estimate: Estimate, shown: Callable[[float], str]) -> str:
    if estimate.is_exact:
        return shown(estimate.value)
    return f"{shown(estimate.value)} ({shown(estimate.low)} to {shown(estimate.high)})"


def number(value: float) -> str:
    return f"{round(value):,}"


def size(value: float) -> str:
    for unit in _UNITS:
        if value < _STEP or unit == _UNITS[-1]:
            return f"{value:.0f} {unit}" if value >= _LARGE or unit == "bytes" else f"{value:.1f} {unit}"
        value /= _STEP
    raise AssertionError


def duration(value: float) -> str:
    if not isfinite(value) or value < _MINUTE_S:
        return f"{value:.1f} s"
    if value < _HOUR_S:
        return f"{value / _MINUTE_S:.1f} min"
    return f"{value / _HOUR_S:.1f} h" if value < _DAY_S else f"{value / _DAY_S:,.1f} d"


def figure(value: float, unit: str) -> str:
    if unit == "bytes":
        return size(value)
    if unit == "s":
        return duration(value)
    return number(value) if value == round(value) or value >= _LARGE else f"{value:.3g}"
