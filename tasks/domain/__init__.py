"""Shared types. Imports nothing else of ours."""

from tasks.domain.job import Job, Shard
from tasks.domain.outcome import Answer, Failure, JobResult, Stage
from tasks.domain.spec import ModelIdentity, RunSpec, SamplerName, Sampling

__all__ = [
    "Answer",
    "Failure",
    "Job",
    "JobResult",
    "ModelIdentity",
    "RunSpec",
    "SamplerName",
    "Sampling",
    "Shard",
    "Stage",
]
