import pytest

from flows.spec import make_spec
from infra.errors import ConfigurationError
from infra.settings import PromptChoice, SamplingChoice, Settings
from tasks.model.identity import TINY_MODEL, read_model_card


@pytest.fixture
def card():
    return read_model_card(str(TINY_MODEL), revision=None)


def test_sampling_settings_reach_the_spec(card, monkeypatch):
    monkeypatch.setenv("REELABEL_SAMPLING_SAMPLER", "dynamic")
    monkeypatch.setenv("REELABEL_SAMPLING_MAX_DURATION_S", "60")
    monkeypatch.setenv("REELABEL_SAMPLING_DROP_SIMILAR", "0.95")

    sampling = make_spec(card, Settings()).sampling

    assert (sampling.sampler, sampling.max_duration_s, sampling.drop_similar) == ("dynamic", 60, 0.95)
    assert sampling.size_multiple_px == card.size_multiple_px


def test_settings_that_do_not_go_together_are_named(card, monkeypatch):
    monkeypatch.setenv("REELABEL_SAMPLING_FPS", "2")

    with pytest.raises(ConfigurationError, match="the sampler keyframes takes no fps"):
        make_spec(card, Settings())


def test_what_a_run_asks_for_wins_over_the_settings(card):
    settings = Settings(
        sampling={"sampler": "dynamic", "fps": 1, "num_frames": 4, "drop_similar": 0.9, "jpeg_quality": 90}
    )

    same = make_spec(card, settings, choice=SamplingChoice(max_duration_s=9)).sampling
    other = make_spec(card, settings, num_frames=8, choice=SamplingChoice(sampler="uniform")).sampling

    assert (same.sampler, same.fps, same.max_duration_s, same.num_frames) == ("dynamic", 1, 9, 4)
    assert (other.sampler, other.fps, other.num_frames, other.drop_similar) == ("uniform", None, 8, 0.9)
    assert other.jpeg_quality == 90


def test_orders_of_choices_are_the_runs_or_the_settings(card):
    settings = Settings(model={"permutations": 2})

    assert make_spec(card, settings).permutations == 2
    assert make_spec(card, settings, permutations=4).permutations == 4


def test_a_choice_of_nothing_is_the_spec_of_the_settings(card):
    settings = Settings(sampling={"sampler": "dynamic", "max_duration_s": 9})

    assert make_spec(card, settings, choice=SamplingChoice()).spec_id == make_spec(card, settings).spec_id


def test_frames_stored_otherwise_without_loss_are_asked_no_new_questions(card, monkeypatch):
    by_default = make_spec(card, Settings())
    monkeypatch.setenv("REELABEL_STORE_ENCODING", "raw")

    assert make_spec(card, Settings()).spec_id == by_default.spec_id


def test_wording_of_a_run_wins_over_the_settings_and_is_part_of_the_spec(card):
    settings = Settings(model={"system_prompt": "Be brief.", "examples": "Q: one."})

    as_set = make_spec(card, settings)
    worded = make_spec(card, settings, prompts=PromptChoice(examples="Q: two."))

    assert (as_set.system_prompt, as_set.examples) == ("Be brief.", "Q: one.")
    assert (worded.system_prompt, worded.examples) == ("Be brief.", "Q: two.")
    assert worded.spec_id != as_set.spec_id
