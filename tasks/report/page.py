"""Render a report as one self-contained HTML file."""

from __future__ import annotations

from dataclasses import asdict, fields, replace
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from reelabel.coverage import DOCS_PAGE
from reelabel.sampling.options import DEFAULT_NUM_FRAMES, estimate_frames
from reelabel.text import pluralize
from tasks.report.jobs import drop_strips
from tasks.report.rendering import MAX_BYTES, duration, page_value, render_page

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tasks.report.jobs import ShownJob, ShownJobs
    from tasks.report.report import Report
    from tasks.report.trade import TradeOff


# Maximum lengths of texts, tried in this order until the page fits.
LENGTHS = (4_000, 2_000, 1_000, 500, 250, 120, 60, 30)
_SHARED = ("question", "system_prompt")


def shorten_texts(shown: ShownJobs, max_characters: int) -> ShownJobs:
    """Shorten all texts of jobs except the ids, by which they are found."""
    return replace(shown, jobs=tuple(_shorten(job, max_characters) for job in shown.jobs))


def deduplicate_texts(jobs: Iterable[ShownJob]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return jobs as JSON values with questions and system prompts replaced by indices, and the texts they refer to."""
    rows = [{field.name: getattr(job, field.name) for field in fields(job)} for job in jobs]
    texts = list(dict.fromkeys(row[name] for row in rows for name in _SHARED if row[name] is not None))
    number_of = {text: number for number, text in enumerate(texts)}
    return [row | {name: number_of.get(row[name]) for name in _SHARED} for row in rows], texts


def _shorten(job: ShownJob, max_characters: int) -> ShownJob:
    def cut(value: Any) -> Any:  # noqa: ANN401 - a column's value
        if not isinstance(value, str) or len(value) <= max_characters:
            return value
        return f"{value[:max_characters]}... ({len(value):,} characters)"

    return replace(
        job,
        facts={name: cut(value) for name, value in job.facts.items()},
        choices=tuple((cut(text), share) for text, share in job.choices) if job.choices else job.choices,
        chunks=tuple(replace(each, label=cut(each.label), message=cut(each.message)) for each in job.chunks),
        **{name: cut(getattr(job, name)) for name in ("before", "question", "system_prompt", "video")},
    )


_FRAMES_BYTES = 1_000_000
_SECTIONS = (
    ("glance", "Run"),
    ("time", "Time"),
    ("labels", "Labels"),
    ("failures", "Failures"),
    ("changes", "Changes"),
    ("trade", "Trade-off"),
    ("job", "Job"),
    ("replay", "Replay"),
)
_OWN = ("theme.js", "picks.js", "draw.js", "charts.js", "chunks.js", "job.js", "replay.js")
_MIN_DRAWN_SHARE = 0.005


def render(report: Report) -> str:
    """Render a report as a page of less than MAX_BYTES.

    Texts of jobs are shortened to leave _FRAMES_BYTES for frames, and frames of the last videos are dropped until the
    page fits. Its content security policy allows only our own scripts, by hash, and no requests to other hosts.
    """
    report = _with_short_texts(report)
    page = _render(report)
    while len(page.encode()) >= MAX_BYTES and report.shown.strips:
        kept = len(report.shown.strips) * 3 // 4
        report = replace(report, shown=drop_strips(report.shown, kept))
        page = _render(report)
    return page


def _with_short_texts(report: Report) -> Report:
    without_frames = drop_strips(report.shown, 0)

    @cache
    def size_at(max_characters: int) -> int:
        return len(_render(replace(report, shown=shorten_texts(without_frames, max_characters))).encode())

    with_frames = (length for length in LENGTHS if size_at(length) < MAX_BYTES - _FRAMES_BYTES)
    alone = (
        length for length in LENGTHS if size_at(length) < MAX_BYTES
    )  # if shorter texts alone do not leave that much
    max_characters = next(chain(with_frames, alone), LENGTHS[-1])
    return replace(report, shown=shorten_texts(report.shown, max_characters))


def _render(report: Report) -> str:
    glance = report.glance
    parts = ", ".join(f"{name} {duration(ms / 1e3)}" for name, ms in glance.parts)
    labels = ", ".join(f"{each.label or 'all others'} {each.jobs:,}" for each in report.label_counts)
    return render_page(
        "page.html.jinja",
        own=_OWN,
        report=report,
        data=page_value(_data(report)),
        sections=[section for section in _SECTIONS if section[0] != "trade" or report.trade],
        parts_label=f"Seconds by part: {parts}.",
        labels_label=f"Jobs by label: {labels}.",
        shown_note=_shown_note(report),
        job_link=_job_link({job.job_id for job in report.shown.jobs}),
        read_more=DOCS_PAGE,
    )


def _shown_note(report: Report) -> str:
    jobs, shown = report.labels + report.failures, len(report.shown.jobs)
    with_frames = sum(_has_frames(job) for job in report.shown.jobs)
    if shown == jobs:
        return f"All {pluralize(jobs, 'job')} are in this report, {with_frames:,} with their frames."
    return (
        f"{shown:,} of {pluralize(jobs, 'job')} are in this report, {with_frames:,} with their frames: those that "
        "failed, changed, are wrong, uncertain or slow come first, then a random sample with a fixed seed."
    )


def _has_frames(job: ShownJob) -> bool:
    strips = (job.strip, *(chunk.strip for chunk in job.chunks), *(medium.strip for medium in job.media))
    return any(strip is not None for strip in strips)


def _data(report: Report) -> dict[str, Any]:
    """Return the data of the page's scripts, as JSON values and dataclasses that `page_value` converts."""
    jobs, texts = deduplicate_texts(report.shown.jobs)
    return {
        "run_id": str(report.glance.run_id),
        "parts": _parts(report),
        "timeline": report.timeline.drawn if report.timeline else [],
        "label_counts": report.label_counts,
        "margins": report.margins,
        "choice_masses": report.choice_masses,
        "reliability": report.reliability,
        "known": report.known,
        "jobs": jobs,
        "texts": texts,
        "strips": report.shown.strips,
        "num_frames": estimate_frames(int(str(report.sampling.get("num_frames", DEFAULT_NUM_FRAMES)))),
        "native_sampler": report.native_sampler,
        "trade": _trade(report.trade) if report.trade else None,
    }


def _trade(trade: TradeOff) -> dict[str, Any]:
    evaluation = trade.evaluation
    return {
        "specs": [
            asdict(spec.accuracy)
            | {"name": spec.name, "frames": spec.cost.frames_decoded, "is_baseline": spec.name == evaluation.baseline}
            for spec in evaluation.specs
            if spec.accuracy and spec.cost.frames_decoded
        ],
        "deltas": [asdict(group.difference) | {"title": group.title} for group in trade.drawn if group.difference],
    }


def _parts(report: Report) -> list[dict[str, Any]]:
    """Return the parts of the wall-clock profile that can be drawn, combining those too short by themselves."""
    parts = report.glance.parts
    least_ms = _MIN_DRAWN_SHARE * sum(ms for _, ms in parts)
    drawn = [(name, ms) for name, ms in parts if ms >= least_ms]
    rest_ms = sum(ms for _, ms in parts if ms < least_ms)
    rest = [("all others", rest_ms)] if rest_ms >= least_ms and rest_ms else []
    return [{"name": name, "ms": ms} for name, ms in [*drawn, *rest]]


def _job_link(shown: set[str]) -> Any:  # noqa: ANN401 - a template function
    """Return a function that links to a job if it is on the page, and otherwise returns its id."""
    link = Markup('<a href="#job" data-job="{0}">{0}</a>')
    return lambda job_id: link.format(page_value(job_id)) if job_id in shown else job_id
