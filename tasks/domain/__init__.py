"""Shared types. Imports no other package of Reelabel."""

from tasks.domain.cost import RunCost
from tasks.domain.job import Job, Shard
from tasks.domain.ledger import RunPhase, WallClockProfile
from tasks.domain.outcome import Answer, Failure, FirstAnswer, JobResult, OrderBias, Stage
from tasks.domain.segment import WHOLE, Segment
from tasks.domain.spec import ROUTING_OPTIONS, SAMPLER_OPTIONS, ModelIdentity, RunSpec, SamplerName, Sampling
from tasks.domain.view import View, group_by_view

__all__ = [
    "ROUTING_OPTIONS",
    "SAMPLER_OPTIONS",
    "WHOLE",
    "Answer",
    "Failure",
    "FirstAnswer",
    "Job",
    "JobResult",
    "ModelIdentity",
    "OrderBias",
    "RunCost",
    "RunPhase",
    "RunSpec",
    "SamplerName",
    "Sampling",
    "Segment",
    "Shard",
    "Stage",
    "View",
    "WallClockProfile",
    "group_by_view",
]
