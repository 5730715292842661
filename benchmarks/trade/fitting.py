"""The specs to compare, and fits on clips of another seed: tasks without motion, and margins.

Coverage thresholds other than the default ones are tried, too, on answers with keyframes and with the dense sampler.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from benchmarks.trade.clips import MOTION
from benchmarks.trade.margins import estimate_margin, still_tasks, task_needs
from reelabel.coverage import DEFAULT_THRESHOLDS, CoverageThresholds, measure_coverage
from reelabel.digest import hash64
from reelabel.sampling.options import Sampling
from tasks.demo.actors import SIDE_PX
from tasks.domain import RunSpec
from tasks.evaluation.route import PairedAnswers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from benchmarks.trade.inference import Answers
    from benchmarks.trade.margins import EstimatedMargin, TaskNeed
    from tasks.domain import ModelIdentity

    Ask = Callable[[str, RunSpec], Answers]

_NONE = CoverageThresholds(min_keyframes=1, max_gap_s=1e6, min_coverage=0.0)
_ALONE = (
    *(replace(_NONE, min_keyframes=number) for number in (3, 4, 8, 16)),
    *(replace(_NONE, max_gap_s=gap_s) for gap_s in (1.0, 1.5, 2.0, 2.5, 4.0)),
    *(replace(_NONE, min_coverage=cover) for cover in (0.2, 0.4, 0.6, 0.8)),
)
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


WITHIN = 0.005  # so that it stays within one point on other clips


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """Fitted numbers.

    Attributes:
        clips: Number of clips that they were fitted on.
        seed: Seed of those clips.
        needs: What each task and subtask loses on keyframes.
        routes: For each spec to escalate from, the margin below which to ask again.
        thresholds: Results of other coverage thresholds.
    """

    clips: int
    seed: int
    needs: tuple[TaskNeed, ...]
    routes: Mapping[str, EstimatedMargin]
    thresholds: Sequence[Mapping[str, Any]] = field(repr=False)

    def specs_of(self, model: ModelIdentity) -> dict[str, RunSpec]:
        """Return the specs that use the fitted numbers, by name."""
        auto = auto_of(model, still_tasks(self.needs))
        firsts = {KEYFRAMES: specs_of(model)[KEYFRAMES], AUTO: auto}
        escalations = {escalated_name(each): escalated(firsts[each], self.routes[each].below) for each in ESCALATED}
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
        thresholds=try_thresholds(manifest, answers[KEYFRAMES], answers[DENSE]),
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


def try_thresholds(manifest: pl.DataFrame, first: Answers, second: Answers) -> list[dict[str, Any]]:
    """Apply no threshold, each one alone, and the default ones together, to questions about motion.

    Args:
        manifest: Jobs with their right answers.
        first: Answers with keyframes.
        second: Answers with the dense sampler, whose own result comes first.

    Returns:
        By `name`: `by_keyframes`, the share of the clips whose keyframes are sufficient; `accuracy`; `frames_decoded`.
    """
    moving = manifest.filter(task=MOTION).select("job_id", "answer")
    rows = moving.join(first.rows, on="job_id").join(second.rows, on="job_id", suffix="_again")
    ends = [
        _try(
            rows, replace(DEFAULT_THRESHOLDS, coverage_radius_s=0.0), f"{DENSE} for all clips"
        ),  # no instant is near a keyframe
        _try(rows, _NONE, "none: clips of one keyframe alone"),
    ]
    alone = [_try(rows, thresholds, _named(thresholds)) for thresholds in _ALONE]
    return [*ends, *alone, _try(rows, DEFAULT_THRESHOLDS, f"default: {_named(DEFAULT_THRESHOLDS)}")]


def _named(thresholds: CoverageThresholds) -> str:
    """Return the names and values of the thresholds in effect."""
    numbers = {name: value for name, value in asdict(thresholds).items() if value != getattr(_NONE, name)}
    return ", ".join(f"{name} {value:g}" for name, value in numbers.items())


def _try(rows: pl.DataFrame, thresholds: CoverageThresholds, name: str) -> dict[str, Any]:
    sufficient = [
        _are_sufficient(keyframe_ms, duration_s, thresholds)
        for keyframe_ms, duration_s in rows.select("keyframe_ms", "duration_s").iter_rows()
    ]
    by_keyframes = pl.Series(sufficient)
    taken = rows.select(
        right=pl.when(by_keyframes).then("label").otherwise("label_again") == pl.col("answer"),
        frames=pl.when(by_keyframes).then("frames_decoded").otherwise("frames_decoded_again"),
    )
    return {
        "name": name,
        "by_keyframes": int(by_keyframes.sum()) / len(rows),
        "accuracy": int(taken["right"].sum()) / len(rows),
        "frames_decoded": int(taken["frames"].sum()),
    }


def _are_sufficient(keyframe_ms: list[int] | None, duration_s: float, thresholds: CoverageThresholds) -> bool:
    times_ms = None if keyframe_ms is None else np.array(keyframe_ms, np.int64)
    return measure_coverage(times_ms, keyframes=0, duration_s=duration_s, thresholds=thresholds).is_good
