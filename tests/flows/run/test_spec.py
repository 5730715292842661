from dataclasses import replace

import pytest

from flows.cli.options import choose
from flows.run.parameters import SpecOverrides
from flows.run.request import RunRequest, resolve_spec
from flows.run.spec import make_spec
from infra.settings import PromptOptions, Settings
from infra.settings.sampling import SamplingOptions
from reelabel.errors import ConfigurationError
from tasks.domain import ModelIdentity
from tasks.model.identity import TINY_MODEL, read_model_card


def sampled(**options):
    return SpecOverrides(sampling=SamplingOptions(**options))


def worded(**options):
    return SpecOverrides(prompts=PromptOptions(**options))


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


def test_contradicting_settings_are_named(card, monkeypatch):
    monkeypatch.setenv("REELABEL_SAMPLING_FPS", "2")

    with pytest.raises(ConfigurationError, match="the sampler keyframes takes no fps"):
        make_spec(card, Settings())


def test_options_of_a_run_override_the_settings(card):
    settings = Settings(
        sampling={"sampler": "dynamic", "fps": 1, "num_frames": 4, "drop_similar": 0.9, "jpeg_quality": 90}
    )

    same = make_spec(card, settings, sampled(max_duration_s=9)).sampling
    other = make_spec(card, settings, sampled(num_frames=8, sampler="uniform")).sampling

    assert (same.sampler, same.fps, same.max_duration_s, same.num_frames) == ("dynamic", 1, 9, 4)
    assert (other.sampler, other.fps, other.num_frames, other.drop_similar) == ("uniform", None, 8, 0.9)
    assert other.jpeg_quality == 90


def test_choice_orders_come_from_the_run_or_the_settings(card):
    settings = Settings(model={"permutations": 2})

    assert make_spec(card, settings).permutations == 2
    assert make_spec(card, settings, worded(permutations=4)).permutations == 4


def test_a_run_without_options_has_the_spec_of_the_settings(card):
    settings = Settings(sampling={"sampler": "dynamic", "max_duration_s": 9})

    assert make_spec(card, settings, SpecOverrides()).spec_id == make_spec(card, settings).spec_id


def test_another_lossless_encoding_does_not_change_the_spec(card, monkeypatch):
    by_default = make_spec(card, Settings())
    monkeypatch.setenv("REELABEL_STORE_ENCODING", "raw")

    assert make_spec(card, Settings()).spec_id == by_default.spec_id


def test_the_wording_of_a_run_overrides_the_settings_and_is_part_of_the_spec(card):
    settings = Settings(model={"system_prompt": "Be brief.", "examples": "Q: one."})

    as_set = make_spec(card, settings)
    changed = make_spec(card, settings, worded(examples="Q: two."))

    assert (as_set.system_prompt, as_set.examples) == ("Be brief.", "Q: one.")
    assert (changed.system_prompt, changed.examples) == ("Be brief.", "Q: two.")
    assert changed.spec_id != as_set.spec_id


def test_whatever_a_server_changes_in_the_answers_is_part_of_the_spec(card):
    def served(frames, card):
        return make_spec(card, Settings(model={"backend": "openai"}, server={"frames": frames}))

    ours = make_spec(card, Settings())
    only_named = replace(card, identity=ModelIdentity(name="reelabel-tiny", served_at="http://gpu-1/v1"))

    assert served("png", card).spec_id == ours.spec_id
    assert served("images", card).spec_id != ours.spec_id
    assert served("png", only_named).spec_id != ours.spec_id


def test_routing_settings_apply_only_where_samplers_are_chosen_by_job(card):
    settings = Settings(
        sampling={"max_gap_s": 4, "dense_sampler": "fps", "motion_tasks": ["order"], "escalate_below": 0.5}
    )

    auto = make_spec(card, settings, sampled(sampler="auto")).sampling
    cascade = make_spec(card, settings).sampling
    plain = [
        make_spec(card, settings, overrides).sampling
        for overrides in (sampled(escalate_below=0), sampled(sampler="uniform"))
    ]

    assert (auto.max_gap_s, auto.dense_sampler, auto.motion_tasks, auto.escalate_below) == (4, "fps", ("order",), 0.5)
    assert cascade == make_spec(card, Settings()).sampling.model_copy(
        update={"escalate_below": 0.5, "dense_sampler": "fps"}
    )
    assert plain[0] == make_spec(card, Settings()).sampling
    assert (plain[1].sampler, plain[1].escalate_below, plain[1].dense_sampler) == ("uniform", None, None)


def test_tasks_are_named_by_commas():
    assert choose(SamplingOptions, {"motion_tasks": "order, direction,"}).motion_tasks == ("order", "direction")
    assert choose(SamplingOptions, {"still_tasks": "colour"}).still_tasks == ("colour",)


@pytest.mark.parametrize("asked", [{"sampling": {"num_frames": 32}}, {"prompts": {"permutations": 2}}, {}])
def test_only_the_model_option_changes_the_model(card, asked):
    mine = card.identity.model_copy(update={"name": "mine"})
    base = make_spec(card, Settings()).model_copy(update={"model": mine})
    request = RunRequest(kind="backfill", manifest="m", base=base, overrides=SpecOverrides(**asked))

    with pytest.raises(ConfigurationError, match=r"the earlier run's model .*its model was mine.* to use"):
        resolve_spec(request, Settings())
    _, named = resolve_spec(replace(request, overrides=SpecOverrides(**asked, model=str(TINY_MODEL))), Settings())
    _, same = resolve_spec(replace(request, base=make_spec(card, Settings())), Settings())

    assert named.model == same.model == card.identity


def test_a_server_that_takes_images_does_not_continue_a_run_that_used_video(card):
    base = make_spec(card, Settings()).model_copy(update={"frames_as": "images"})

    with pytest.raises(ConfigurationError, match="no longer match the earlier run's frames_as "):
        resolve_spec(RunRequest(kind="backfill", manifest="m", base=base, overrides=sampled(num_frames=32)), Settings())
