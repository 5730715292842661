"""Render the page of a run that describes videos, as one self-contained HTML file."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from reelabel.text import pluralize
from tasks.report.rendering import MAX_BYTES, page_value, render_page
from tasks.report.videos.gather import NO_ROOM

if TYPE_CHECKING:
    from tasks.report.videos.gather import ShownVideo, VideosReport

_OWN = ("theme.js", "draw.js", "videos.js")
_SECTIONS = (("glance", "Run"), ("failures", "Failures"), ("videos", "Videos"))


def render_videos(report: VideosReport) -> str:
    """Render a page of less than MAX_BYTES: frames of the last videos, then their chunks, then they are left out."""
    page = _render(report)
    for thin in (_without_frames, _without_parts, _without_last):
        while len(page.encode()) >= MAX_BYTES:
            thinned = thin(report)
            if thinned is None:
                break
            report = thinned
            page = _render(report)
    return page


def _without_frames(report: VideosReport) -> VideosReport | None:
    """Leave out the frames of a quarter of the videos that have some; None if none has."""
    return _thinned(
        report, [video.strip for video in report.videos], lambda video: replace(video, strip=(), no_strip=NO_ROOM)
    )


def _without_parts(report: VideosReport) -> VideosReport | None:
    return _thinned(report, [video.parts for video in report.videos], lambda video: replace(video, parts=()))


def _without_last(report: VideosReport) -> VideosReport | None:
    return replace(report, videos=report.videos[: len(report.videos) * 3 // 4]) if len(report.videos) > 1 else None


def _thinned(report: VideosReport, has: list[Any], without: Any) -> VideosReport | None:  # noqa: ANN401 - a function
    having = [number for number, found in enumerate(has) if found]
    if not having:
        return None
    dropped = set(having[len(having) * 3 // 4 :])
    videos = (without(video) if number in dropped else video for number, video in enumerate(report.videos))
    return replace(report, videos=tuple(videos))


def _render(report: VideosReport) -> str:
    return render_page(
        "videos.html.jinja",
        own=_OWN,
        report=report,
        data=page_value(_data(report)),
        sections=_SECTIONS,
        job_link=str,  # of every job, as text
        shown_note=_shown_note(report),
    )


def _shown_note(report: VideosReport) -> str:
    shown, with_frames = len(report.videos), sum(bool(video.strip) for video in report.videos)
    if shown == report.described:
        return f"All {pluralize(shown, 'described video')} are in this report, {with_frames:,} with their frames."
    return (
        f"{shown:,} of {pluralize(report.described, 'described video')} are in this report, {with_frames:,} with their "
        "frames: a random sample with a fixed seed."
    )


def _data(report: VideosReport) -> dict[str, Any]:
    """Return the data of the page's script; tags and captions are in one list, to which all others refer."""
    texts = list(dict.fromkeys(text for video in report.videos for text in _texts(video)))
    number_of = {text: number for number, text in enumerate(texts)}

    def numbered(tags: tuple[tuple[str, float], ...]) -> list[list[float]]:
        return [[number_of[text], score] for text, score in tags]

    return {
        "run_id": str(report.glance.run_id),
        "texts": texts,
        "videos": [
            {
                "id": video.job_id,
                "uri": video.video,
                "length": video.duration_s,
                "tags": numbered(video.tags),
                "caption": numbered((video.caption,))[0] if video.caption else None,
                "scenes": video.scenes,
                "changes": video.scene_changes,
                "method": video.scene_method,
                "notes": [note for note in (video.scene_note, video.note) if note],
                "parts": [
                    [
                        part.start_s,
                        part.end_s,
                        numbered(part.tags),
                        None if part.caption is None else number_of[part.caption],
                    ]
                    for part in video.parts
                ],
                "strip": video.strip,
                "no_strip": video.no_strip,
            }
            for video in report.videos
        ],
    }


def _texts(video: ShownVideo) -> list[str]:
    tags = [text for text, _ in (*video.tags, *(tag for part in video.parts for tag in part.tags))]
    captions = [part.caption for part in video.parts if part.caption is not None]
    return [*tags, *captions, *([video.caption[0]] if video.caption else [])]
