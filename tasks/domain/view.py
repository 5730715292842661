"""Views: the frames that several jobs share."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from reelabel.sampling.passes import choose_pass
from reelabel.segment import WHOLE, Segment

if TYPE_CHECKING:
    from collections.abc import Iterable

    from reelabel.sampling.options import Sampling
    from reelabel.sampling.passes import FramePass
    from tasks.domain.job import Job


class View(NamedTuple):
    """The frames of one video that some jobs share: extracted once, into one frame file.

    Attributes:
        video_uri: The video.
        shown: Which of its frames.
        segment: The segment that they are from.
    """

    video_uri: str
    shown: FramePass = "first"
    segment: Segment = WHOLE

    @classmethod
    def of(cls, job: Job, sampling: Sampling) -> View:
        """Return the view that a job is shown first."""
        return cls(job.video_uri, choose_pass(sampling, job), Segment.of(job.start_s, job.end_s))

    @property
    def name(self) -> str:
        """Unique name, used as the video id of a batch's questions."""
        segment = "" if self.segment.is_whole else f"\n{self.segment}"
        return f"{self.video_uri}{segment}" if self.shown == "first" else f"{self.video_uri}{segment}\n{self.shown}"


def group_by_view(jobs: Iterable[Job], sampling: Sampling) -> dict[View, list[Job]]:
    """Group jobs by the view that they are shown first, in order of first appearance."""
    groups: dict[View, list[Job]] = {}
    for job in jobs:
        groups.setdefault(View.of(job, sampling), []).append(job)
    return groups
