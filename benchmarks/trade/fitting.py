"""What is fitted on clips of another seed: which tasks need no motion, and the margins for escalation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from benchmarks.trade.candidates import AUTO, DENSE, ESCALATED, KEYFRAMES, auto_of, escalated, escalated_name, specs_of
from benchmarks.trade.margins import estimate_margin, still_tasks, task_needs
from benchmarks.trade.thresholds import try_thresholds
from reelabel.digest import hash64
from tasks.evaluation.route import PairedAnswers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from benchmarks.trade.inference import Answers
    from benchmarks.trade.margins import EstimatedMargin, TaskNeed
    from benchmarks.trade.thresholds import ThresholdResult
    from tasks.domain import ModelIdentity, RunSpec

    Ask = Callable[[str, RunSpec], Answers]

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
    thresholds: tuple[ThresholdResult, ...] = field(repr=False)

    def specs_of(self, model: ModelIdentity) -> dict[str, RunSpec]:
        """Return the specs that use the fitted numbers, by name."""
        auto = auto_of(model, still_tasks(self.needs))
        firsts = {KEYFRAMES: specs_of(model)[KEYFRAMES], AUTO: auto}
        escalations = {escalated_name(each): escalated(firsts[each], self.routes[each].below) for each in ESCALATED}
        return {AUTO: auto} | escalations


def fit(manifest: pl.DataFrame, model: ModelIdentity, ask: Ask, *, seed: int) -> Fitted:
    """Ask with keyframes, with the dense sampler and with `auto`, and fit to the answers.

    Args:
        manifest: Jobs to fit on.
        model: The model that answers.
        ask: Answers all jobs with a named spec.
        seed: Seed of the clips.
    """
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
        thresholds=tuple(try_thresholds(manifest, answers[KEYFRAMES], answers[DENSE])),
    )


def asked_twice(manifest: pl.DataFrame, first: Answers, second: Answers) -> PairedAnswers:
    """Join first answers with those of the dense sampler.

    Args:
        manifest: Jobs with their right answers.
        first: Answers with keyframes, or with `auto`.
        second: Answers with the dense sampler.
    """
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
