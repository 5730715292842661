"""The specs to compare, and fits on clips of another seed: tasks without motion, and margins.

Margins are estimates; `reelabel route fit` stores only proven ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from reelabel.digest import hash64
from reelabel.sampling.options import Sampling
from tasks.demo.actors import SIDE_PX
from tasks.domain import RunSpec
from tasks.evaluation.route import PairedAnswers, RoutingPoint, evaluate_margin
from tasks.evaluation.significance import paired_difference

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from benchmarks.trade.inference import Answers
    from tasks.domain import ModelIdentity
    from tasks.evaluation.scores import Difference

    Ask = Callable[[str, RunSpec], Answers]

DENSE, UNIFORM, KEYFRAMES, AUTO = "qwen2_vl", "uniform:16", "keyframes", "auto"
_FIXED: dict[str, dict[str, Any]] = {
    DENSE: {"sampler": DENSE},  # the baseline: two frames per second
    UNIFORM: {"sampler": "uniform"},
    "uniform:8": {"sampler": "uniform", "num_frames": 8},
    KEYFRAMES: {"sampler": "keyframes"},
    "keyframes:4": {"sampler": "keyframes", "num_frames": 4},
}
ESCALATED = (KEYFRAMES, AUTO)
WITHIN = 0.005  # so that it stays within one point on other clips
LARGEST_LOSS = 0.05
_CURVE_POINTS = 20
_ROUNDING = 1e-9


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """Fitted numbers.

    Attributes:
        clips: Number of clips that they were fitted on.
        seed: Seed of those clips.
        needs: What each task and subtask loses on keyframes.
        routes: For each spec to escalate from, the margin below which to ask again.
    """

    clips: int
    seed: int
    needs: tuple[TaskNeed, ...]
    routes: Mapping[str, EstimatedMargin]

    def specs_of(self, model: ModelIdentity) -> dict[str, RunSpec]:
        """Return the specs that use the fitted numbers, by name."""
        auto = auto_of(model, still_tasks(self.needs))
        firsts = {KEYFRAMES: specs_of(model)[KEYFRAMES], AUTO: auto}
        escalations = {f"{each}, escalated": escalated(firsts[each], self.routes[each].below) for each in ESCALATED}
        return {AUTO: auto} | escalations


def fit(manifest: pl.DataFrame, model: ModelIdentity, ask: Ask, *, seed: int) -> Fitted:
    """Ask with keyframes, with the dense sampler and with `auto`, and fit to the answers; `seed` is the clips'."""
    specs = specs_of(model)
    answers = {name: ask(name, specs[name]) for name in (DENSE, KEYFRAMES)}
    both = answers[KEYFRAMES].rows.join(answers[DENSE].rows, on="job_id", suffix="_dense").join(manifest, on="job_id")
    is_right = {"first": pl.col("label") == pl.col("answer"), "dense": pl.col("label_dense") == pl.col("answer")}
    needs = task_needs(both.select("task", "subtask", **is_right))
    answers[AUTO] = ask(AUTO, auto_of(model, still_tasks(needs)))
    return Fitted(
        clips=manifest.height,
        seed=seed,
        needs=needs,
        routes={
            first: estimate_margin(asked_twice(manifest, answers[first], answers[DENSE]), WITHIN) for first in ESCALATED
        },
    )


def asked_twice(manifest: pl.DataFrame, first: Answers, second: Answers) -> PairedAnswers:
    """Join first answers, with keyframes or with `auto`, with those of the dense sampler."""
    known = manifest.select("job_id", "video_uri", "answer", "task")
    rows = known.join(first.rows, on="job_id").join(second.rows, on="job_id", suffix="_again")
    by_keyframes = pl.col("sampler") == "keyframes"
    columns = rows.select(
        videos=pl.Series([hash64(uri) for uri in rows["video_uri"]], dtype=pl.UInt64),
        tasks="task",
        margins=pl.when(by_keyframes).then("margin").otherwise(np.inf),
        first_right=pl.col("label") == pl.col("answer"),
        second_right=pl.col("label_again") == pl.col("answer"),
        # Every job sees its whole video.
        first_views=pl.struct("video_uri", "sampler").hash(),
        second_views=pl.struct("video_uri", "sampler_again").hash(),
        first_frames="frames_decoded",
        second_frames="frames_decoded_again",
        first_s=pl.col("decode_s") + pl.col("engine_s"),
        second_s=pl.col("decode_s_again") + pl.col("engine_s_again"),
    )
    arrays = {name: columns[name].to_numpy() for name in columns.columns}
    return PairedAnswers(**arrays | {"tasks": arrays["tasks"].astype(np.str_)})


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimatedMargin:
    """The smallest margin that loses little in a sample.

    Attributes:
        below: The margin.
        half_below: The same of each half of the videos.
        held_out: Each half evaluated at the margin of the other.
        dense_accuracy: Accuracy of the dense sampler.
        dense_frames: Frames that it decodes.
    """

    below: float
    half_below: tuple[float, float]
    held_out: RoutingPoint
    dense_accuracy: float
    dense_frames: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskNeed:
    """What the jobs of a task, or a subtask of one, lose on keyframes, and whether they certainly lose little."""

    task: str
    subtask: str | None
    first: float
    dense: float
    difference: Difference
    is_still: bool


def estimate_margin(sample: PairedAnswers, within: float) -> EstimatedMargin:
    """Estimate the smallest margin that loses at most `within` against the dense sampler."""
    is_first = np.isin(sample.videos, np.unique(sample.videos)[::2])
    halves = sample.take(is_first), sample.take(~is_first)
    half_below = _smallest(halves[0], within), _smallest(halves[1], within)
    points = [evaluate_margin(half, below) for half, below in zip(halves, half_below[::-1], strict=True)]
    shares = [len(half.margins) / len(sample.margins) for half in halves]
    return EstimatedMargin(
        below=_smallest(sample, within),
        half_below=half_below,
        held_out=RoutingPoint(
            below=None,
            asked_again=sum(share * point.asked_again for share, point in zip(shares, points, strict=True)),
            accuracy=sum(share * point.accuracy for share, point in zip(shares, points, strict=True)),
            frames_decoded=sum(point.frames_decoded for point in points),
            seconds=sum(point.seconds for point in points),
        ),
        dense_accuracy=float(sample.second_right.mean()),
        dense_frames=int(sample.second_frames[np.unique(sample.second_views, return_index=True)[1]].sum()),
    )


def _smallest(sample: PairedAnswers, within: float) -> float:
    """Return the smallest margin such that it and all larger ones lose little; if none does, ask all again."""
    can_be_asked = np.isfinite(sample.margins)
    margins, places = np.unique(sample.margins[can_be_asked], return_inverse=True)
    gains = sample.second_right[can_be_asked].astype(np.float64) - sample.first_right[can_be_asked]
    right = sample.first_right.sum() + np.cumsum([0.0, *np.bincount(places, gains, minlength=len(margins))])
    is_enough = right >= sample.second_right.sum() - within * len(sample.margins) - _ROUNDING
    stays_enough = np.logical_and.accumulate(is_enough[::-1])[::-1]
    below = np.array([0.0, *np.nextafter(margins, 2)])
    return float(below[stays_enough.argmax()] if stays_enough.any() else below[-1])


def accuracy_curve(sample: PairedAnswers) -> tuple[RoutingPoint, ...]:
    """Evaluate margins from no job to all jobs escalated, in steps of about equally many jobs."""
    margins = sample.margins[np.isfinite(sample.margins)]
    shares = np.linspace(0, 1, _CURVE_POINTS + 1)[1:]
    steps = np.quantile(margins, shares, method="higher") if margins.size else margins
    return tuple(evaluate_margin(sample, below) for below in [0.0, *np.unique(np.nextafter(steps, 2)).tolist()])


def task_needs(rows: pl.DataFrame) -> tuple[TaskNeed, ...]:
    """Compare keyframes with the dense sampler by task, then by subtask; a task must not hide a subtask that loses.

    `rows` has `task`, `subtask`, and whether the `first` and the `dense` answer is right.
    """
    losing = {
        task
        for (task, _), part in rows.group_by("task", "subtask")
        if paired_difference(part["first"].to_numpy(), part["dense"].to_numpy()).high < 0
    }
    needs = []
    for keys in (["task"], ["subtask", "task"]):
        for names, part in rows.sort(keys).group_by(keys, maintain_order=True):
            task, subtask = str(names[-1]), str(names[0]) if len(names) > 1 else None
            difference = paired_difference(part["first"].to_numpy(), part["dense"].to_numpy())
            is_losing = difference.high < 0 if subtask else task in losing
            needs.append(
                TaskNeed(
                    task=task,
                    subtask=subtask,
                    first=float(part["first"].to_numpy().mean()),
                    dense=float(part["dense"].to_numpy().mean()),
                    difference=difference,
                    is_still=difference.low > -LARGEST_LOSS and not is_losing,
                )
            )
    return tuple(needs)


def still_tasks(needs: Sequence[TaskNeed]) -> tuple[str, ...]:
    """Return the tasks, and subtasks of other tasks, that any frame answers."""
    tasks = [need.task for need in needs if need.is_still and not need.subtask]
    return (*tasks, *(need.subtask for need in needs if need.is_still and need.subtask and need.task not in tasks))
