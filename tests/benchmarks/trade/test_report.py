"""The report shows what keyframes cost, for which questions, and what escalation recovers."""

import numpy as np
import polars as pl
import pytest

from benchmarks.trade.clips import MOTION, SCENE, mix
from benchmarks.trade.fitting import AUTO, DENSE, KEYFRAMES, escalated, fit, specs_of, still_tasks
from benchmarks.trade.inference import ANSWER_SCHEMA, Answers
from benchmarks.trade.report import Trade
from tasks.domain import ModelIdentity
from tools.tiny_model.scenes import SCENE_QUESTIONS

FRAMES = 80


@pytest.fixture(scope="module")
def jobs():
    cells = mix(320)
    return pl.DataFrame(
        {
            "job_id": [str(number) for number in range(len(cells))],
            "video_uri": [f"{number}.mp4" for number in range(len(cells))],
            "answer": [cell.answer for cell in cells],
            "task": [cell.task for cell in cells],
            "subtask": [cell.subtask for cell in cells],
            "keyframes": [cell.keyframes for cell in cells],
        }
    )


def answers(jobs, *, sampler, is_blind):
    """Answer rightly and surely; where blind, by the first choice and without being sure."""
    rows = [
        {
            "job_id": row["job_id"],
            "label": SCENE_QUESTIONS[row["subtask"]][1][0] if is_blind(row) else row["answer"],
            "choice_mass": 1.0,
            "probabilities": [0.25] * 4 if is_blind(row) else [0.97, 0.01, 0.01, 0.01],
            "margin": 0.05 if is_blind(row) else 0.96,
            "sampler": sampler,
            "frames_decoded": row["keyframes"] if sampler == "keyframes" else FRAMES,
            "decode_s": 0.01,
            "engine_s": 0.02,
        }
        for row in jobs.iter_rows(named=True)
    ]
    return Answers(rows=pl.DataFrame(rows, schema=ANSWER_SCHEMA), wall_s=8.0)


def is_blind(row):
    return row["task"] == MOTION and row["keyframes"] == 1


def answer(jobs, spec):
    """Answer as a model does that sees everything losslessly, and scenes by keyframes."""
    if spec.sampling.sampler == "qwen2_vl":
        return answers(jobs, sampler="qwen2_vl", is_blind=lambda _: False)
    return answers(jobs, sampler="keyframes", is_blind=is_blind)


@pytest.fixture(scope="module")
def trade(jobs):
    model = ModelIdentity(name="m", fingerprint="f", dtype="float32")
    fitted = fit(jobs, model, lambda _, spec: answer(jobs, spec), seed=7)
    specs = specs_of(model) | fitted.specs_of(model)
    return Trade.of(jobs, {name: answer(jobs, spec) for name, spec in specs.items()}, specs, fitted)


def test_clips_with_one_keyframe_are_at_chance_only_for_motion(trade):
    assert trade.accuracy(KEYFRAMES, 1, task=MOTION) == pytest.approx(0.25)
    assert trade.accuracy(KEYFRAMES, 1, task=SCENE) == trade.accuracy(KEYFRAMES, 2, task=MOTION) == 1.0


def test_frames_are_counted_by_task(trade):
    assert trade.frames_decoded(DENSE) == 320 * FRAMES
    assert trade.frames_decoded(KEYFRAMES, SCENE) == 32 * (1 + 2 + 4 + 8 + 16)


def test_routing_rules_are_fitted(trade):
    route = trade.fitted.routes[KEYFRAMES]

    assert still_tasks(trade.fitted.needs) == (SCENE,)
    assert 0.05 < route.below < 0.96
    assert route.held_out.accuracy >= 0.99
    assert route.held_out.asked_again == pytest.approx(0.1, abs=0.02)


def test_configurations_use_the_fitted_rules(trade):
    specs = trade.fitted.specs_of(ModelIdentity(name="m"))

    assert specs[AUTO].sampling.still_tasks == (SCENE,)
    assert specs[f"{KEYFRAMES}, escalated"].sampling.escalate_below == trade.fitted.routes[KEYFRAMES].below
    assert specs[f"{AUTO}, escalated"].sampling.escalate_below == trade.fitted.routes[AUTO].below


def test_a_fitted_margin_gives_a_runnable_spec():
    spec = specs_of(ModelIdentity(name="m", fingerprint="f", dtype="float32"))[KEYFRAMES]

    sampling = escalated(spec, float(np.nextafter(1.0, 2))).sampling

    assert (sampling.sampler, sampling.escalate_below, sampling.dense_sampler) == (KEYFRAMES, 1.0, "qwen2_vl")


def test_the_tables_name_every_subtask_and_configuration(trade):
    tables = {table.title: table for table in trade.tables()}
    text = {
        title: [column.cell(row) for row in table.rows for column in table.columns] for title, table in tables.items()
    }

    assert {*SCENE_QUESTIONS, "0.25"} <= {*text[f"{KEYFRAMES}: accuracy by number of keyframes"]}
    assert {spec.name for spec in trade.evaluation.specs} <= {*text["Cost"]}
    assert f"{AUTO}, then {DENSE} where the margin is below" in text
    learnt = "Fitted on 320 other clips, seed 7: "
    assert "not surely" in text[f"{learnt}what {KEYFRAMES} lose"]
    assert KEYFRAMES in text[f"{learnt}margins below which to ask again"]
