"""Shared types. Imports nothing else of ours."""

from tasks.domain.job import Job, Shard
from tasks.domain.outcome import Answer, Failure, JobResult, Stage
from tasks.domain.spec import ModelIdentity, RunSpec, Sampling

__all__ = [
    "Answer",
    "Failure",
    "Job",
    "JobResult",
    "ModelIdentity",
    "RunSpec",
    "Sampling",
    "Shard",
    "Stage",
]
