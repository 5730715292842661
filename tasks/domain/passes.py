"""The passes of a job over a video, and the sampler of each; escalation is a pass with a dense sampler.

The sampling of a pass equals that of a run that uses its sampler alone, so that frame files are shared.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal, Protocol

from reelabel.sampling.options import dense_pass, with_sampler

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reelabel.sampling.options import Sampling

# The frames that a job is shown: those of the run's sampler, keyframes in any case, those of the dense sampler, or an
# image, which is a video of one frame.
FramePass = Literal["first", "keyframes", "dense", "image"]


class Tagged(Protocol):
    """What has the tags of a job, by which its sampler may be chosen."""

    @property
    def task(self) -> str | None: ...

    @property
    def subtask(self) -> str | None: ...


def choose_pass(sampling: Sampling, job: Tagged) -> FramePass:
    """Choose the first pass of a job by its tags; tags that need motion take precedence."""
    tags = {job.task, job.subtask}
    if not tags.isdisjoint(sampling.motion_tasks or ()):
        return "dense"
    return "first" if tags.isdisjoint(sampling.still_tasks or ()) else "keyframes"


def sampling_of_pass(sampling: Sampling, name: FramePass) -> Sampling:
    if name == "keyframes":
        return with_sampler(sampling, "keyframes")
    if name == "image":
        return replace(with_sampler(sampling, "keyframes"), num_frames=1)
    return dense_pass(sampling) if name == "dense" else first_pass(sampling)


def first_pass(sampling: Sampling) -> Sampling:
    """Return the sampling of the first pass, which is still `auto` if it depends on the video."""
    if sampling.sampler == "auto":
        return replace(sampling, escalate_below=None, motion_tasks=None, still_tasks=None)
    return with_sampler(sampling, sampling.sampler)


def sampling_shown(sampling: Sampling, *, sampler: str, chosen_ms: str) -> Sampling:
    """Return the sampling of a frame file, given the sampler and the times of its frames."""
    alone = with_sampler(sampling, sampler)
    return with_times(alone, [int(time_ms) for time_ms in chosen_ms.split(",")]) if chosen_ms else alone


def with_times(sampling: Sampling, times_ms: Sequence[int]) -> Sampling:
    """Add the times that a question has selected, in milliseconds and ascending, to its sampling."""
    return replace(sampling, times_ms=tuple(dict.fromkeys(times_ms)))
