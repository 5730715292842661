"""What is learnt from clips of another seed: which tasks need no motion, and when an answer is asked again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from benchmarks.trade.thresholds import try_thresholds
from benchmarks.trade.ways import AUTO, CASCADES, FAITHFUL, KEYFRAMES, auto_of, cascade_name, cascade_of, specs_of
from tasks.domain.digest import hash_of
from tasks.routing.fit import Target, fit_route
from tasks.routing.needs import fit_still
from tasks.routing.sample import AskedTwice

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from benchmarks.trade.asking import Answers
    from benchmarks.trade.thresholds import Tried
    from tasks.domain import ModelIdentity, RunSpec
    from tasks.routing.fit import RouteFit
    from tasks.routing.needs import StillFit

    Ask = Callable[[str, RunSpec], Answers]

TARGET = Target(within=0.005)  # so that on other clips it stays within a point


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """What was learnt, and from what.

    Attributes:
        clips: How many it was learnt from.
        seed: Of those clips.
        still: Which tasks stay on keyframes, whatever the verdict.
        routes: For each way that a cascade begins with, the margin below which it asks again.
        tried: What other thresholds of the verdict would give.
    """

    clips: int
    seed: int
    still: StillFit
    routes: Mapping[str, RouteFit]
    tried: tuple[Tried, ...] = field(repr=False)

    def specs_of(self, model: ModelIdentity) -> dict[str, RunSpec]:
        """Give the spec of each way that goes by what was learnt."""
        auto = auto_of(model, self.still.tasks)
        firsts = {KEYFRAMES: specs_of(model)[KEYFRAMES], AUTO: auto}
        cascades = {cascade_name(each): cascade_of(firsts[each], self.routes[each].below) for each in CASCADES}
        return {AUTO: auto} | cascades


def learn(manifest: pl.DataFrame, model: ModelIdentity, ask: Ask, *, seed: int) -> Fitted:
    """Ask clips from keyframes, losslessly and by `auto`, and learn from the answers.

    Args:
        manifest: Of the clips to learn from.
        model: Which weights answer.
        ask: Answers all of its jobs by a named way.
        seed: Of the clips.
    """
    specs = specs_of(model)
    answers = {name: ask(name, specs[name]) for name in (FAITHFUL, KEYFRAMES)}
    still = fit_still(asked_twice(manifest, answers[KEYFRAMES], answers[FAITHFUL]))
    answers[AUTO] = ask(AUTO, auto_of(model, still.tasks))
    return Fitted(
        clips=manifest.height,
        seed=seed,
        still=still,
        routes={
            first: fit_route(asked_twice(manifest, answers[first], answers[FAITHFUL]), TARGET) for first in CASCADES
        },
        tried=tuple(try_thresholds(manifest, answers[KEYFRAMES], answers[FAITHFUL])),
    )


def asked_twice(manifest: pl.DataFrame, first: Answers, lossless: Answers) -> AskedTwice:
    """Put first answers beside lossless ones.

    Args:
        manifest: The jobs with their answers.
        first: From keyframes, or by `auto`.
        lossless: By the model's own sampler.
    """
    known = manifest.select("job_id", "video_uri", "answer", "task", "subtask")
    rows = known.join(first.rows, on="job_id").join(lossless.rows, on="job_id", suffix="_again")
    by_keyframes = pl.col("sampler") == "keyframes"
    columns = rows.select(
        videos=pl.Series([hash_of(uri) for uri in rows["video_uri"]], dtype=pl.UInt64),
        tasks="task",
        subtasks="subtask",
        margins=pl.when(by_keyframes).then("margin").otherwise(np.inf),
        first_right=pl.col("label") == pl.col("answer"),
        second_right=pl.col("label_again") == pl.col("answer"),
        # Every job is shown its whole video.
        first_views=pl.struct("video_uri", "sampler").hash(),
        second_views=pl.struct("video_uri", "sampler_again").hash(),
        first_frames="frames_decoded",
        second_frames="frames_decoded_again",
        first_s=pl.col("decode_s") + pl.col("engine_s"),
        second_s=pl.col("decode_s_again") + pl.col("engine_s_again"),
    )
    arrays = {name: columns[name].to_numpy() for name in columns.columns}
    names = {name: arrays[name].astype(np.str_) for name in ("tasks", "subtasks")}
    return AskedTwice(**arrays | names)
