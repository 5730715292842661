"""Questions on one video, and answers in words, on the smallest of models."""

import pytest

from benchmarks.engine.measure import measure_questions
from benchmarks.engine.noise import noise_video
from benchmarks.engine.words import CHOSEN, OWN, compare
from benchmarks.models import Qwen, write_qwen
from reelabel_engine.protocol import EngineConfig

SMALL = Qwen(
    name="small",
    hidden=128,
    intermediate=256,
    layers=2,
    heads=2,
    kv_heads=1,
    mrope_section=(8, 12, 12),
    text={"max_position_embeddings": 8192},
    vision={
        "hidden_size": 128,
        "intermediate_size": 256,
        "depth": 2,
        "num_heads": 2,
        "fullatt_block_indexes": [1],
    },
    dtype="float32",
    pixels=(28 * 28, 56 * 56),
)


@pytest.mark.system
def test_answers_in_words_are_compared_with_those_of_vllm(tmp_path):
    [table], [target] = compare("tiny", tmp_path, requests=2, rounds=1)

    assert [row["name"] for row in table.rows] == [OWN, CHOSEN]
    assert all(row["answers_per_s"] > 0 for row in table.rows)
    assert target.value == pytest.approx(table.rows[1]["answers_per_s"] / table.rows[0]["answers_per_s"])


@pytest.mark.system
def test_questions_on_one_video_are_measured_on_an_architecture_without_weights(tmp_path):
    model = write_qwen(SMALL, tmp_path)
    config = EngineConfig(model=str(model), load_format="dummy")
    log_path = tmp_path / "engine.log"

    one, four = measure_questions(config, log_path, frames=64, side_px=56, rounds=1, counts=(1, 4))

    video_tokens = 64 // 2 * 4
    assert one["cached_tokens"] == 0
    assert four["cached_tokens"] >= 3 * video_tokens  # the video is computed once, for the first question
    assert four["prompt_tokens"] == 4 * one["prompt_tokens"]


def test_videos_of_noise_differ_from_each_other():
    (first, metadata), (second, _) = noise_video(1, frames=4, side_px=28), noise_video(2, frames=4, side_px=28)

    assert first.shape == (4, 28, 28, 3)
    assert (first != second).mean() > 0.9
    assert metadata["frames_indices"] == [0, 1, 2, 3]
