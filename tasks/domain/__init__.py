"""Shared types. Imports no other package of Reelabel."""

from reelabel.sampling.options import Sampling
from reelabel.sampling.registry import ROUTING_OPTIONS, SAMPLER_OPTIONS
from reelabel.segment import WHOLE, Segment
from tasks.domain.cost import RunCost, RunPhase, WallClockProfile
from tasks.domain.job import (
    MAX_JOBS,
    MAX_MEDIA,
    ONE_VIDEO,
    Job,
    MediaCounts,
    Medium,
    Shard,
    View,
    cluster_by_videos,
    group_by_views,
    views_of,
)
from tasks.domain.outcome import (
    LOW_CHOICE_MASS,
    PASSING_CODES,
    Answer,
    ChunkCounts,
    Failure,
    FirstAnswer,
    JobResult,
    OrderBias,
    Stage,
    Words,
)
from tasks.domain.spec import DescribeSpec, EmbeddingSpec, ModelIdentity, RunSpec, Spec

__all__ = [
    "LOW_CHOICE_MASS",
    "MAX_JOBS",
    "MAX_MEDIA",
    "ONE_VIDEO",
    "PASSING_CODES",
    "ROUTING_OPTIONS",
    "SAMPLER_OPTIONS",
    "WHOLE",
    "Answer",
    "ChunkCounts",
    "DescribeSpec",
    "EmbeddingSpec",
    "Failure",
    "FirstAnswer",
    "Job",
    "JobResult",
    "MediaCounts",
    "Medium",
    "ModelIdentity",
    "OrderBias",
    "RunCost",
    "RunPhase",
    "RunSpec",
    "Sampling",
    "Segment",
    "Shard",
    "Spec",
    "Stage",
    "View",
    "WallClockProfile",
    "Words",
    "cluster_by_videos",
    "group_by_views",
    "views_of",
]
