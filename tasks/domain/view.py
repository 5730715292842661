"""What several jobs may share: the frames that they are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tasks.domain.passes import pass_of
from tasks.domain.segment import WHOLE, Segment

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tasks.domain.job import Job
    from tasks.domain.passes import Pass
    from tasks.domain.spec import Sampling


class View(NamedTuple):
    """One video as some jobs are shown it: prepared once, in one frame file.

    Attributes:
        video_uri: The video.
        shown: Which of its frames.
        segment: The part of it that is shown.
    """

    video_uri: str
    shown: Pass = "first"
    segment: Segment = WHOLE

    @classmethod
    def of(cls, job: Job, sampling: Sampling) -> View:
        """Say what a job is shown at first."""
        return cls(job.video_uri, pass_of(sampling, job), Segment.of(job.start_s, job.end_s))

    @property
    def name(self) -> str:
        """A text of its own, by which a batch's questions name it."""
        segment = "" if self.segment.is_whole else f"\n{self.segment}"
        return f"{self.video_uri}{segment}" if self.shown == "first" else f"{self.video_uri}{segment}\n{self.shown}"


def jobs_by_view(jobs: Iterable[Job], sampling: Sampling) -> dict[View, list[Job]]:
    """Group jobs by what they are shown at first, in order of first appearance."""
    groups: dict[View, list[Job]] = {}
    for job in jobs:
        groups.setdefault(View.of(job, sampling), []).append(job)
    return groups
