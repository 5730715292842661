"""The specs to compare: samplers, and escalation from keyframes to the dense sampler."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from reelabel.sampling.options import Sampling
from tasks.demo.actors import SIDE_PX
from tasks.domain import RunSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tasks.domain import ModelIdentity

DENSE, UNIFORM, KEYFRAMES, AUTO = "qwen2_vl", "uniform:16", "keyframes", "auto"
_FIXED: dict[str, dict[str, Any]] = {
    DENSE: {"sampler": DENSE},  # the baseline: two frames per second
    UNIFORM: {"sampler": "uniform"},
    "uniform:8": {"sampler": "uniform", "num_frames": 8},
    KEYFRAMES: {"sampler": "keyframes"},
    "keyframes:4": {"sampler": "keyframes", "num_frames": 4},
}
ESCALATED = (KEYFRAMES, AUTO)


def specs_of(model: ModelIdentity) -> dict[str, RunSpec]:
    """Return the specs without fitted numbers, by name."""
    return {
        name: RunSpec(model=model, sampling=Sampling(max_pixels=SIDE_PX**2, size_multiple_px=28, **options))
        for name, options in _FIXED.items()
    }


def auto_of(model: ModelIdentity, still_tasks: Sequence[str]) -> RunSpec:
    """Return the spec that uses keyframes where they cover the clip, and for still tasks."""
    sampling = Sampling(
        sampler="auto",
        dense_sampler="qwen2_vl",
        still_tasks=tuple(still_tasks) or None,
        max_pixels=SIDE_PX**2,
        size_multiple_px=28,
    )
    return RunSpec(model=model, sampling=sampling)


def escalated(spec: RunSpec, below: float) -> RunSpec:
    """Return a spec that asks again with the dense sampler where the margin of an answer is lower."""
    sampling = replace(spec.sampling, dense_sampler="qwen2_vl", escalate_below=min(below, 1.0))
    return spec.model_copy(update={"sampling": sampling})


def escalated_name(first: str) -> str:
    """Return the name of a spec with escalation."""
    return f"{first}, escalated"
