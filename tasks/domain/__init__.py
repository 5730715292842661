"""Shared types. Imports nothing else of ours."""

from tasks.domain.cost import RunCost
from tasks.domain.job import Job, Shard
from tasks.domain.ledger import Part, TimeLedger
from tasks.domain.outcome import Answer, Failure, JobResult, OrderBias, Stage
from tasks.domain.spec import SAMPLER_OPTIONS, ModelIdentity, RunSpec, SamplerName, Sampling

__all__ = [
    "SAMPLER_OPTIONS",
    "Answer",
    "Failure",
    "Job",
    "JobResult",
    "ModelIdentity",
    "OrderBias",
    "Part",
    "RunCost",
    "RunSpec",
    "SamplerName",
    "Sampling",
    "Shard",
    "Stage",
    "TimeLedger",
]
