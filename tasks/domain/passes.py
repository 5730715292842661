"""The samplers that one way of sampling may take, each as a sampling of its own.

`auto` takes keyframes or a lossless sampler, by the video and by the job; a cascade takes a lossless one after them.
What each of them takes is the same as where it alone was asked for, so that their frame files are shared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from tasks.domain.spec import OPTIONS_OF, SAMPLER_OPTIONS, USUAL_LOSSLESS, Sampling

if TYPE_CHECKING:
    from tasks.domain.job import Job
    from tasks.domain.spec import SamplerName

# What a job is shown: what its video's keyframes decide, these whatever they are good for, or the lossless sampler's.
Pass = Literal["first", "keyframes", "lossless"]


def pass_of(sampling: Sampling, job: Job) -> Pass:
    """Say what a job is shown at first, by its tags; one that needs motion does so whatever else it is."""
    tags = {job.task, job.subtask}
    if not tags.isdisjoint(sampling.motion_tasks or ()):
        return "lossless"
    return "first" if tags.isdisjoint(sampling.still_tasks or ()) else "keyframes"


def shown(sampling: Sampling, name: Pass) -> Sampling:
    """Give the sampling of one pass."""
    if name == "keyframes":
        return taken(sampling, "keyframes")
    return lossless_pass(sampling) if name == "lossless" else first_pass(sampling)


def of_videos_alone(sampling: Sampling) -> Sampling:
    """Let a sampling through that goes by videos alone, as where no jobs are asked.

    Raises:
        ValueError: It goes by jobs' tasks or answers, too.
    """
    by_jobs = [
        name for name in ("escalate_below", "motion_tasks", "still_tasks") if getattr(sampling, name) is not None
    ]
    if by_jobs:
        names = " and ".join(by_jobs)
        raise ValueError(f"{names} cannot be used here, where videos come without jobs and answers; leave it out")
    return sampling


def first_pass(sampling: Sampling) -> Sampling:
    """Give what a job is shown first: `auto` still has to look at the video."""
    if sampling.sampler == "auto":
        return sampling.model_copy(update={"escalate_below": None, "motion_tasks": None, "still_tasks": None})
    return taken(sampling, sampling.sampler)


def lossless_pass(sampling: Sampling) -> Sampling:
    """Give what a job is shown where keyframes are not enough."""
    return taken(sampling, sampling.dense_sampler or USUAL_LOSSLESS)


def routed(sampling: Sampling, *, is_good: bool) -> Sampling:
    """Give what `auto` takes of a video whose keyframes are good, or not."""
    return taken(sampling, "keyframes") if is_good else lossless_pass(sampling)


def taken(sampling: Sampling, sampler: SamplerName) -> Sampling:
    """Give one sampler alone, with those options that it takes."""
    strange = SAMPLER_OPTIONS - OPTIONS_OF[sampler] | {"escalate_below"}
    return Sampling(**sampling.model_dump(exclude=set(strange)) | {"sampler": sampler})
