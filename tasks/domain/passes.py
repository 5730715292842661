"""What a job is shown of a video, by its tags: the sampler of each pass.

Escalation asks again with a dense sampler. The samplings of passes equal those of a run that uses their sampler alone,
so that frame files are shared.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal, Protocol

from reelabel.sampling.options import dense_pass, with_sampler

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reelabel.sampling.options import Sampling

# What a job is shown: what the video's coverage decides, its keyframes in any case, the dense sampler's frames, or an
# image, which is a video of one frame.
FramePass = Literal["first", "keyframes", "dense", "image"]


class Tagged(Protocol):
    """A job's tags, by which its sampler may be chosen."""

    @property
    def task(self) -> str | None:
        """The kind of question."""

    @property
    def subtask(self) -> str | None:
        """The kind in detail."""


def choose_pass(sampling: Sampling, job: Tagged) -> FramePass:
    """Decide by a job's tags what it is shown first; tags that need motion take precedence."""
    tags = {job.task, job.subtask}
    if not tags.isdisjoint(sampling.motion_tasks or ()):
        return "dense"
    return "first" if tags.isdisjoint(sampling.still_tasks or ()) else "keyframes"


def sampling_of_pass(sampling: Sampling, name: FramePass) -> Sampling:
    """Return the sampling of one pass."""
    if name == "keyframes":
        return with_sampler(sampling, "keyframes")
    if name == "image":
        return replace(with_sampler(sampling, "keyframes"), num_frames=1)
    return dense_pass(sampling) if name == "dense" else first_pass(sampling)


def first_pass(sampling: Sampling) -> Sampling:
    """Return the sampling of the first pass; `auto` stays, since it depends on the video."""
    if sampling.sampler == "auto":
        return replace(sampling, escalate_below=None, motion_tasks=None, still_tasks=None)
    return with_sampler(sampling, sampling.sampler)


def sampling_shown(sampling: Sampling, *, sampler: str, chosen_ms: str) -> Sampling:
    """Return the sampling of a frame file by what is known of its frames: their sampler, and their times."""
    alone = with_sampler(sampling, sampler)
    return with_times(alone, [int(time_ms) for time_ms in chosen_ms.split(",")]) if chosen_ms else alone


def with_times(sampling: Sampling, times_ms: Sequence[int]) -> Sampling:
    """Return a sampling by a question with the times that were chosen, in milliseconds, never falling."""
    return replace(sampling, times_ms=tuple(dict.fromkeys(times_ms)))
