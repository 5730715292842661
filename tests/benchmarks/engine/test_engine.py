"""The sweep of engine settings, and questions on one video, on the smallest of models."""

from dataclasses import replace

import pytest

from benchmarks.engine.noise import noise_video
from benchmarks.engine.process import CHOICES_ONLY, TOKEN_ONLY, WITH
from benchmarks.engine.sweep import CHOSEN, OWN, Candidate, Requests, measure_questions, scoring, sweep
from benchmarks.engine.words import compare
from benchmarks.models import MEDIUM, Architecture, write_architecture
from reelabel_engine.protocol import EngineConfig
from tasks.model.engine.process import EngineProcess
from tasks.model.identity import TINY_MODEL

TINY = EngineConfig(model=str(TINY_MODEL))
SMALL = Architecture(
    name="small",
    hidden=128,
    intermediate=256,
    layers=2,
    kv_heads=1,
    vision_hidden=128,
    vision_intermediate=256,
    vision_layers=2,
    max_pixels=56 * 56,
)


@pytest.mark.system
def test_a_sweep_measures_each_setting_and_names_failing_ones():
    refused = Candidate(name="no tokens a step", arguments={"max_num_batched_tokens": 0})
    tried = (Candidate(name=CHOSEN), refused)
    shown = []

    found = sweep(Requests(config=TINY, count=3, side_px=56, rounds=1), tried, on_candidate=shown.append)

    assert shown == [each.name for each in tried]
    [row] = found.rows
    assert (row["name"], found.best) == (CHOSEN, tried[0])
    assert list(found.failures) == [refused.name]
    assert min(row["requests_per_s"], row["core_ms"]) > 0
    assert row["prompt_tokens"] > 32


@pytest.mark.system
def test_answers_with_and_without_choice_mass_are_measured(tmp_path):
    [table] = scoring("tiny", tmp_path, requests=2, rounds=1)

    assert [row["name"] for row in table.rows] == [WITH, CHOICES_ONLY, TOKEN_ONLY]
    assert all(row["request_ms"] > 0 and row["core_ms"] > 0 for row in table.rows)


@pytest.mark.system
def test_answers_in_words_are_compared_with_those_of_vllm(tmp_path):
    [table], [target] = compare("tiny", tmp_path, requests=2, rounds=1)

    assert [row["name"] for row in table.rows] == [OWN, CHOSEN]
    assert all(row["answers_per_s"] > 0 for row in table.rows)
    assert target.value == pytest.approx(table.rows[1]["answers_per_s"] / table.rows[0]["answers_per_s"])


@pytest.mark.system
def test_questions_on_one_video_are_measured_on_an_architecture_without_weights(tmp_path):
    model = write_architecture(SMALL, tmp_path)
    config = EngineConfig(model=str(model), load_format="dummy")
    with EngineProcess(config, log_path=tmp_path / "engine.log", start_timeout_s=240) as engine:
        one, four = measure_questions(engine.answer, frames=64, side_px=56, rounds=1, counts=(1, 4))

    video_tokens = 64 // 2 * 4
    assert one["cached_tokens"] == 0
    assert four["cached_tokens"] >= 3 * video_tokens  # the video is computed once, for the first question
    assert four["prompt_tokens"] == 4 * one["prompt_tokens"]


def test_the_architecture_of_a_hundred_million_parameters_has_about_as_many():
    assert 80e6 < MEDIUM.parameters < 120e6
    assert replace(MEDIUM, layers=18).parameters > 1.5 * MEDIUM.parameters


def test_videos_of_noise_differ_from_each_other():
    (first, metadata), (second, _) = noise_video(1, frames=4, side_px=28), noise_video(2, frames=4, side_px=28)

    assert first.shape == (4, 28, 28, 3)
    assert (first != second).mean() > 0.9
    assert metadata["frames_indices"] == [0, 1, 2, 3]
