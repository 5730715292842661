"""The ways of sampling that are compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tasks.demo.actors import SIDE_PX
from tasks.domain import RunSpec, Sampling

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tasks.domain import ModelIdentity

FAITHFUL, UNIFORM, KEYFRAMES, AUTO = "faithful", "uniform:16", "keyframes", "auto"
_PLAIN: dict[str, dict[str, Any]] = {
    FAITHFUL: {"sampler": "qwen2_vl"},  # the model's own, which the others are compared with
    UNIFORM: {"sampler": "uniform"},
    "uniform:8": {"sampler": "uniform", "num_frames": 8},
    KEYFRAMES: {"sampler": "keyframes"},
    "keyframes:4": {"sampler": "keyframes", "num_frames": 4},
}
CASCADES = (KEYFRAMES, AUTO)


def specs_of(model: ModelIdentity) -> dict[str, RunSpec]:
    """Give the spec of each way that needs no fit, by its name."""
    return {
        name: RunSpec(model=model, sampling=Sampling(max_pixels=SIDE_PX**2, **options))
        for name, options in _PLAIN.items()
    }


def auto_of(model: ModelIdentity, still_tasks: Sequence[str]) -> RunSpec:
    """Choose by each clip's verdict, at the usual thresholds, but for tasks that any frame answers."""
    sampling = Sampling(
        sampler="auto", dense_sampler="qwen2_vl", still_tasks=tuple(still_tasks) or None, max_pixels=SIDE_PX**2
    )
    return RunSpec(model=model, sampling=sampling)


def cascade_of(spec: RunSpec, below: float) -> RunSpec:
    """Ask losslessly, too, where the margin of a spec's answer is below a number."""
    again = {"dense_sampler": "qwen2_vl", "escalate_below": min(below, 1.0)}
    return spec.model_copy(update={"sampling": Sampling(**spec.sampling.model_dump() | again)})


def cascade_name(first: str) -> str:
    """Name the way that begins with another one."""
    return f"{first}, cascade"
