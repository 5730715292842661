"""The positions of a prompt's tokens, where videos and audio are adjacent; `in_engine_positions` asks vLLM's models."""

from types import SimpleNamespace

import numpy as np
import pytest

from reelabel_engine.positions import (
    MAX_STEP_S,
    SECONDS,
    STARTS,
    last_time,
    number_adjacent,
    positions_per_s,
    table_length,
    time_indexes,
)


@pytest.mark.parametrize(
    ("times_s", "per_s", "has_audio", "expected"),
    [
        pytest.param([0, 1, 2.5], 2, False, [0, 2, 5], id="from the beginning"),
        pytest.param([7, 8, 9.5], 2, False, [0, 2, 5], id="the first is at the beginning"),
        pytest.param([7, 8, 9.5], 2, True, [4, 6, 9], id="with audio, two seconds later"),
        pytest.param([0.5, 1.5], 2, True, [1, 3], id="or as late as the first"),
        pytest.param([0, MAX_STEP_S, 100, 101], 1, False, [0, 30, 60, 61], id="long gaps are shortened"),
        pytest.param([0, 0.1, 0.2, 0.3], 10, False, [0, 1, 2, 3], id="in spite of rounding"),
        pytest.param([3, 1], 1, False, [0, 0], id="none is before the first"),
    ],
)
def test_items_begin_at_their_times(times_s, per_s, has_audio, expected):
    assert time_indexes(times_s, per_s, has_audio=has_audio).tolist() == expected


@pytest.mark.parametrize(
    ("config", "per_s"),
    [
        pytest.param({}, 1.0, id="of a model that does not say"),
        pytest.param({"vision_config": SimpleNamespace(tokens_per_second=4)}, 4.0, id="of its vision"),
        pytest.param({"thinker_config": SimpleNamespace(position_id_per_seconds=25)}, 25.0, id="of its thinker"),
        pytest.param(
            {
                "thinker_config": SimpleNamespace(
                    position_id_per_seconds=25, vision_config=SimpleNamespace(tokens_per_second=13)
                )
            },
            13.0,
            id="of its thinker's vision",
        ),
    ],
)
def test_a_second_has_as_many_positions_as_the_model_says(config, per_s):
    assert positions_per_s(SimpleNamespace(**config)) == per_s


def element(*values):
    return SimpleNamespace(data=np.array(values if len(values) != 1 else values[0]))


CONFIG = SimpleNamespace(vision_config=SimpleNamespace(tokens_per_second=2))


@pytest.mark.parametrize(
    ("values", "last"),
    [
        pytest.param({"video_grid_thw": element(5, 4, 4)}, 0.0, id="without times"),
        pytest.param({"video_grid_thw": element(5, 4, 4), SECONDS: element(1.5)}, 12.0, id="at a rate"),
        pytest.param({SECONDS: element(1.5), STARTS: element(3.0, 4.0, 9.5)}, 13.0, id="at times of their own"),
    ],
)
def test_the_last_pair_of_a_video_begins_where_its_times_say(values, last):
    assert last_time(values, CONFIG) == last


@pytest.mark.parametrize(
    ("rope", "length"),
    [
        pytest.param(None, 400, id="plain"),
        pytest.param({"rope_type": "default"}, 400, id="default"),
        pytest.param({"rope_type": "linear", "factor": 3.0}, 100, id="scaled"),
        pytest.param({"rope_type": "yarn", "original_max_position_embeddings": 50, "factor": 3.0}, 600, id="yarn"),
    ],
)
def test_the_rotary_table_is_as_long_as_vllm_makes_it(rope, length):
    text = SimpleNamespace(max_position_embeddings=100, rope_parameters=rope)

    assert table_length(SimpleNamespace(hf_text_config=text)) == length


class Model:
    """Of the Qwen2-VL family: a pair of frames has a grid of 1 x 2 x 2 tokens, and each of its times is `factor`."""

    config = SimpleNamespace(vision_config=SimpleNamespace(tokens_per_second=2))

    def __init__(self):
        self.read = 0

    def iter_mm_grid_thw(self, features):
        for feature in features:
            self.read += 1
            yield feature.mm_position.offset, feature.times, 2, 2, 2.0


def video(offset, *, times=1, seconds=None, is_embed=None, modality="video", name=""):
    data = {} if seconds is None else {SECONDS: element(seconds)}
    position = SimpleNamespace(offset=offset, length=4 * times, is_embed=is_embed)
    return SimpleNamespace(modality=modality, data=data, mm_position=position, times=times, identifier=name)


def test_adjacent_pairs_are_numbered_as_one_video_and_the_text_goes_on_after_it():
    found = number_adjacent(Model(), [0] * 12, [video(2), video(6)])

    assert found.tolist() == [
        [0, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 5],
        [0, 1, 2, 2, 3, 3, 2, 2, 3, 3, 4, 5],
        [0, 1, 2, 3, 2, 3, 2, 3, 2, 3, 4, 5],
    ]


def test_adjacent_pairs_with_times_begin_at_them():
    found = number_adjacent(Model(), [0] * 10, [video(1, seconds=3.0), video(5, seconds=5.5)])

    assert found[0].tolist() == [0, 1, 1, 1, 1, 6, 6, 6, 6, 7]


def test_a_video_beside_adjacent_ones_is_numbered_as_usual():
    found = number_adjacent(Model(), [0] * 18, [video(0), video(4), video(9, times=2)])

    assert found[0].tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 2, *[3] * 4, *[5] * 4, 6]
    assert found[1, 9:17].tolist() == [3, 3, 4, 4] * 2
    assert found[2, 9:17].tolist() == [3, 4, 3, 4] * 2


@pytest.mark.parametrize(
    "features",
    [
        pytest.param([], id="no video"),
        pytest.param([video(2)], id="one"),
        pytest.param([video(2), video(7)], id="two with a token between them"),
        pytest.param([video(2), video(6, is_embed=[True])], id="two with texts in the placeholder"),
        pytest.param([video(2, modality="image"), video(6, modality="image")], id="two images"),
        pytest.param([video(2, modality="image"), video(6)], id="an image and a video"),
    ],
)
def test_other_prompts_are_left_to_the_model(features):
    assert number_adjacent(Model(), [0] * 20, features) is None


def test_shapes_of_earlier_prompts_are_not_read_again():
    model, known = Model(), {}
    first, second, third = (video(2 + 4 * number, name=str(number)) for number in range(3))

    number_adjacent(model, [0] * 10, [first, second], known=known)
    found = number_adjacent(model, [0] * 14, [first, second, third], known=known)

    assert model.read == 3
    assert found.tolist() == number_adjacent(Model(), [0] * 14, [first, second, third]).tolist()


class Thinker:
    """Of Qwen2.5-Omni, whose audio is numbered by the same time as the frames."""

    config = SimpleNamespace(audio_start_token_id=9, position_id_per_seconds=2)

    def iter_mm_features(self, features):
        for feature in features:
            yield feature.mm_position.offset, feature.modality, {"grid_t": 1, "grid_h": 2, "grid_w": 2, "t_factor": 1.0}


def test_audio_is_numbered_by_the_time_of_the_frames_beside_it():
    found = number_adjacent(Thinker(), [9] + [0] * 9, [video(1, seconds=2.0), video(5, seconds=3.0, modality="audio")])

    assert found[0].tolist() == [0, *[5] * 4, 7, 8, 9, 10, 11]
    assert found[1].tolist() == [0, 1, 1, 2, 2, 7, 8, 9, 10, 11]
    assert found[2].tolist() == [0, 1, 2, 1, 2, 7, 8, 9, 10, 11]


def test_a_pair_with_audio_around_it_is_numbered_even_alone():
    found = number_adjacent(Thinker(), [9, *[0] * 5], [video(1, seconds=1.0)])

    assert found[0].tolist() == [0, 3, 3, 3, 3, 4]
