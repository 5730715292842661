from contextlib import nullcontext
from dataclasses import replace

import pytest

from flows.cli.options import choose
from flows.run.request import NO_OVERRIDES, QuestionOptions
from flows.run.spec import engine_settings, make_spec, native_warning, require_model, resolve_spec
from infra.settings import ChunkOptions, PromptOptions, SamplingOptions, Settings
from reelabel.errors import ConfigurationError, ReelabelError
from reelabel_engine.errors import ModelError
from tasks.domain import ModelIdentity, RunSpec
from tasks.model.engine.vllm_backend import engine_config
from tasks.model.identity import TINY_ENCODER, TINY_MODEL, read_model_info


def sampled(**options):
    return QuestionOptions(sampling=SamplingOptions(**options))


def worded(**options):
    return QuestionOptions(prompts=PromptOptions(**options))


@pytest.fixture
def model_info():
    return read_model_info(str(TINY_MODEL), revision=None)


def test_sampling_settings_reach_the_spec(model_info, monkeypatch):
    monkeypatch.setenv("REELABEL_SAMPLING_SAMPLER", "dynamic")
    monkeypatch.setenv("REELABEL_SAMPLING_JPEG_QUALITY", "90")
    monkeypatch.setenv("REELABEL_SAMPLING_DROP_SIMILAR", "0.95")

    sampling = make_spec(model_info, Settings()).sampling

    assert (sampling.sampler, sampling.jpeg_quality, sampling.drop_similar) == ("dynamic", 90, 0.95)
    assert sampling.size_multiple_px == model_info.size_multiple_px


def test_contradicting_settings_are_named(model_info, monkeypatch):
    monkeypatch.setenv("REELABEL_SAMPLING_FPS", "2")

    with pytest.raises(ConfigurationError, match="the sampler keyframes takes no fps"):
        make_spec(model_info, Settings())


def test_options_of_a_run_override_the_settings(model_info):
    settings = Settings(
        sampling={"sampler": "dynamic", "fps": 1, "num_frames": 4, "drop_similar": 0.9, "jpeg_quality": 90}
    )

    same = make_spec(model_info, settings, sampled(max_duration_s=9)).sampling
    other = make_spec(model_info, settings, sampled(num_frames=8, sampler="uniform")).sampling

    assert (same.sampler, same.fps, same.max_duration_s, same.num_frames) == ("dynamic", 1, 9, 4)
    assert (other.sampler, other.fps, other.num_frames, other.drop_similar) == ("uniform", None, 8, 0.9)
    assert other.jpeg_quality == 90


def test_a_run_without_options_has_the_spec_of_the_settings(model_info):
    settings = Settings(sampling={"sampler": "dynamic", "fps": 9})

    assert make_spec(model_info, settings, QuestionOptions()).spec_id == make_spec(model_info, settings).spec_id


def test_another_lossless_encoding_does_not_change_the_spec(model_info, monkeypatch):
    by_default = make_spec(model_info, Settings())
    monkeypatch.setenv("REELABEL_STORE_ENCODING", "raw")

    assert make_spec(model_info, Settings()).spec_id == by_default.spec_id


def test_the_wording_of_a_run_overrides_the_settings_and_is_part_of_the_spec(model_info):
    settings = Settings(model={"system_prompt": "Be brief.", "template": "{prompt} {choices}"})

    as_set = make_spec(model_info, settings)
    changed = make_spec(model_info, settings, worded(template="{choices} {prompt}"))

    assert (as_set.system_prompt, as_set.template) == ("Be brief.", "{prompt} {choices}")
    assert (changed.system_prompt, changed.template) == ("Be brief.", "{choices} {prompt}")
    assert changed.spec_id != as_set.spec_id


def test_whatever_a_server_changes_in_the_answers_is_part_of_the_spec(model_info):
    def served(frames, model_info):
        return make_spec(model_info, Settings(model={"backend": "openai"}, server={"frames": frames}))

    ours = make_spec(model_info, Settings())
    only_named = replace(model_info, identity=ModelIdentity(name="reelabel-tiny", served_at="http://gpu-1/v1"))

    assert served("png", model_info).spec_id == ours.spec_id
    assert served("images", model_info).spec_id != ours.spec_id
    assert served("png", only_named).spec_id != ours.spec_id


def test_routing_settings_apply_only_where_samplers_are_chosen_by_job(model_info):
    settings = Settings(sampling={"escalate_below": 0.5})
    routed = {"max_gap_s": 4, "dense_sampler": "fps", "motion_tasks": ("order",)}

    auto = make_spec(model_info, settings, sampled(sampler="auto", **routed)).sampling
    cascade = make_spec(model_info, settings, sampled(dense_sampler="fps")).sampling
    plain = [
        make_spec(model_info, settings, overrides).sampling
        for overrides in (sampled(escalate_below=0), sampled(sampler="uniform"))
    ]

    assert (auto.max_gap_s, auto.dense_sampler, auto.motion_tasks, auto.escalate_below) == (4, "fps", ("order",), 0.5)
    assert cascade == replace(make_spec(model_info, Settings()).sampling, escalate_below=0.5, dense_sampler="fps")
    assert plain[0] == make_spec(model_info, Settings()).sampling
    assert (plain[1].sampler, plain[1].escalate_below, plain[1].dense_sampler) == ("uniform", None, None)


def trained_with(model_info, sampler, **facts):
    return replace(model_info, native_sampler=sampler, native_frames=None, **facts)


def test_native_is_the_sampler_that_the_model_was_trained_with(model_info):
    by_settings = make_spec(model_info, Settings(sampling={"sampler": "native"})).sampling
    by_option = make_spec(model_info, Settings(), sampled(sampler="native")).sampling
    qwen = make_spec(trained_with(model_info, "qwen2_vl"), Settings(), sampled(sampler="native", fps=4)).sampling

    assert (
        by_settings
        == by_option
        == make_spec(model_info, Settings(), sampled(sampler="uniform", num_frames=16)).sampling
    )
    assert (qwen.sampler, qwen.fps) == ("qwen2_vl", 4)


@pytest.mark.parametrize(
    ("settings", "options", "frames"),
    [
        ({}, {"sampler": "native"}, 384),
        ({"num_frames": 8}, {"sampler": "native"}, 384),
        ({"sampler": "native", "num_frames": 8}, {}, 8),
        ({}, {"sampler": "native", "num_frames": 4}, 4),
    ],
)
def test_native_takes_the_models_own_number_of_frames_unless_one_is_named(model_info, settings, options, frames):
    molmo2 = replace(model_info, native_sampler="molmo2", native_frames=384)

    sampling = make_spec(molmo2, Settings(sampling=settings), sampled(**options)).sampling

    assert (sampling.sampler, sampling.num_frames) == ("molmo2", frames)


def test_keyframes_that_are_not_enough_give_way_to_the_native_sampler(model_info):
    qwen = trained_with(model_info, "qwen2_vl")

    auto = make_spec(qwen, Settings(), sampled(sampler="auto", min_frames=2)).sampling
    escalating = make_spec(qwen, Settings(), sampled(escalate_below=0.5)).sampling
    named = make_spec(qwen, Settings(), sampled(sampler="auto", dense_sampler="fps")).sampling

    assert (auto.dense_sampler, auto.min_frames, escalating.dense_sampler) == ("qwen2_vl", 2, "qwen2_vl")
    assert named.dense_sampler == "fps"


@pytest.mark.parametrize("dense", [{}, {"dense_sampler": "native"}])
def test_a_model_trained_on_uniform_frames_has_the_spec_of_a_run_without_a_dense_sampler(model_info, dense):
    chosen = make_spec(model_info, Settings(), sampled(sampler="auto", **dense)).sampling

    assert chosen.dense_sampler is None


def test_a_backfill_keeps_the_dense_sampler_of_its_run(model_info):
    qwen = trained_with(model_info, "qwen2_vl")
    uniform, native = (make_spec(each, Settings(), sampled(sampler="auto")) for each in (model_info, qwen))
    keyframes = make_spec(model_info, Settings())

    assert make_spec(model_info, Settings(), base=native).sampling.dense_sampler == "qwen2_vl"
    assert make_spec(qwen, Settings(), base=uniform).sampling.dense_sampler is None
    assert make_spec(qwen, Settings(), sampled(sampler="auto"), base=keyframes).sampling.dense_sampler == "qwen2_vl"


@pytest.mark.parametrize(
    ("options", "warns"),
    [
        ({"sampler": "native"}, True),
        ({"sampler": "auto"}, True),
        ({"escalate_below": 0.5}, True),
        ({"sampler": "auto", "dense_sampler": "fps"}, False),
        ({}, False),
        ({"sampler": "uniform"}, False),
    ],
)
def test_a_native_sampler_that_is_not_known_is_reported_where_it_is_used(model_info, options, warns):
    unknown = trained_with(model_info, "uniform", native_doubt="no sampler is known for its video processor Another")

    warning = native_warning(unknown, Settings(), sampled(**options))

    assert (
        warning.startswith(
            "The native sampler of reelabel-tiny is not known: no sampler is known for its video processor Another; "
            "uniform is used, as vLLM does;"
        )
        == warns
    )
    assert bool(warning) == warns
    assert native_warning(model_info, Settings(), sampled(**options)) == ""


def test_frames_that_are_not_to_be_replaced_say_nothing_about_keyframes(model_info):
    base = make_spec(model_info, Settings(), sampled(sampler="fps", frame_recovery=False))

    assert base.sampling.frame_recovery is False
    for sampler, kept in (("fps", False), ("keyframes", None)):
        changed = sampled(sampler=sampler)
        assert make_spec(model_info, Settings(), changed, base=base).sampling.frame_recovery is kept


def test_the_option_of_a_run_for_hdr_replaces_that_of_the_settings(model_info):
    settings = Settings(sampling={"hdr": "as_decoded"})

    assert make_spec(model_info, settings).sampling.hdr == "as_decoded"
    assert make_spec(model_info, settings, sampled(hdr="sdr")).spec_id == make_spec(model_info, Settings()).spec_id


def test_tasks_are_named_by_commas():
    assert choose(SamplingOptions, {"motion_tasks": "order, direction,"}).motion_tasks == ("order", "direction")
    assert choose(SamplingOptions, {"still_tasks": "colour"}).still_tasks == ("colour",)


@pytest.mark.parametrize("options", [{"sampling": {"num_frames": 32}}, {"prompts": {"permutations": 2}}, {}])
def test_only_the_model_option_changes_the_model(model_info, options):
    mine = model_info.identity.model_copy(update={"name": "mine"})
    base = make_spec(model_info, Settings()).model_copy(update={"model": mine})

    with pytest.raises(ConfigurationError, match=r"the earlier run's model .*its model was mine.* to use"):
        resolve_spec(QuestionOptions(**options), Settings(), base=base)
    _, named = resolve_spec(QuestionOptions(**options, model=str(TINY_MODEL)), Settings(), base=base)
    _, same = resolve_spec(QuestionOptions(**options), Settings(), base=make_spec(model_info, Settings()))

    assert named.model == same.model == model_info.identity


def test_a_backfill_of_a_run_with_a_folder_as_its_model_says_that_the_folder_must_be_named(model_info):
    base = make_spec(model_info, Settings())

    with pytest.raises(ConfigurationError, match=r"The earlier run's model, reelabel-tiny, was a folder; name that"):
        resolve_spec(NO_OVERRIDES, Settings(model={"name": None}), base=base)


def test_a_server_that_takes_images_does_not_continue_a_run_that_used_video(model_info):
    base = make_spec(model_info, Settings()).model_copy(update={"frames_as": "images"})

    with pytest.raises(ConfigurationError, match="no longer match the earlier run's frames_as "):
        resolve_spec(sampled(num_frames=32), Settings(), base=base)


def test_every_frame_is_sized_as_a_usual_number_of_frames(model_info):
    limited = replace(model_info, max_pixels=None, max_video_pixels=16 * 200_000)

    every = make_spec(limited, Settings(), sampled(sampler="uniform", num_frames=-1)).sampling

    assert (every.num_frames, every.max_pixels) == (-1, 200_000)


def test_pruning_is_the_runs_the_earlier_runs_or_the_settings_and_part_of_the_spec(model_info):
    settings = Settings(model={"video_pruning_rate": 0.5})
    plain, pruned = make_spec(model_info, Settings()), make_spec(model_info, settings)
    switched_off = QuestionOptions(video_pruning_rate=0)

    assert (pruned.video_pruning_rate, plain.video_pruning_rate) == (0.5, None)
    assert make_spec(model_info, settings, QuestionOptions(video_pruning_rate=0.25)).video_pruning_rate == 0.25
    assert make_spec(model_info, settings, switched_off).spec_id == plain.spec_id != pruned.spec_id
    assert make_spec(model_info, Settings(), base=pruned).spec_id == pruned.spec_id
    assert make_spec(model_info, settings, base=plain).spec_id == plain.spec_id


def test_an_engine_prunes_as_its_spec_says_whatever_the_settings_say(model_info):
    settings = Settings(model={"video_pruning_rate": 0.5})

    assert engine_config(model_info, settings).video_pruning_rate == 0.5
    assert (
        engine_config(model_info, engine_settings(settings, make_spec(model_info, Settings()))).video_pruning_rate == 0
    )


def test_a_server_is_not_asked_to_prune(model_info):
    with pytest.raises(
        ConfigurationError, match="The backend openai takes no video_pruning_rate, because pruning is up to"
    ):
        make_spec(model_info, Settings(model={"backend": "openai", "video_pruning_rate": 0.5}))


def chunked(**options):
    return QuestionOptions(chunks=ChunkOptions(**options))


def test_chunks_are_the_runs_or_the_earlier_runs_and_part_of_the_spec(model_info):
    settings = Settings()
    plain, cut = make_spec(model_info, settings), make_spec(model_info, settings, chunked(chunk_s=60))

    assert (cut.chunk_s, cut.chunk_rule, plain.chunk_s, plain.chunk_rule) == (60, "majority", None, None)
    assert "chunk_s" not in plain.model_dump()
    assert make_spec(model_info, settings, chunked(chunk_s=0), base=cut).spec_id == plain.spec_id != cut.spec_id
    found = make_spec(model_info, settings, chunked(chunk_rule="any:red"), base=cut)
    assert (found.chunk_s, found.chunk_rule) == (60, "any:red")
    assert make_spec(model_info, settings, base=found).spec_id == found.spec_id
    assert len({plain.spec_id, cut.spec_id, found.spec_id}) == 3


def test_a_rule_without_chunks_an_unknown_one_and_a_fitted_margin_are_refused(model_info):
    with pytest.raises(ConfigurationError, match="The chunk rule mean has no chunks; also set chunk_s, such as 60"):
        make_spec(model_info, Settings(), chunked(chunk_rule="mean"))
    with pytest.raises(ConfigurationError, match="There is no chunk rule 'most': use majority, mean, or any:CHOICE"):
        make_spec(model_info, Settings(), chunked(chunk_s=60, chunk_rule="most"))
    fitted = chunked(chunk_s=60).model_copy(update={"sampling": SamplingOptions(escalate_below="fitted")})
    with pytest.raises(ConfigurationError, match="was fitted to the margins of whole clips, not of chunks"):
        make_spec(model_info, Settings(), fitted)


def test_a_sampler_by_the_question_says_among_which_frames_it_chooses_and_by_which_model(model_info):
    relevant = make_spec(
        model_info, Settings(describe={"frames_per_chunk": 8}), sampled(sampler="relevant", num_frames=4)
    )
    other = make_spec(model_info, Settings(), sampled(sampler="relevant", num_frames=4))
    plain = make_spec(model_info, Settings(describe={"frames_per_chunk": 8}))

    assert relevant.relevance.model == read_model_info(str(TINY_ENCODER)).identity
    assert (relevant.relevance.seconds_per_chunk, relevant.relevance.frames_per_chunk) == (10.0, 8)
    assert len({relevant.spec_id, other.spec_id, plain.spec_id}) == 3
    assert plain.relevance is None
    assert "relevance" not in plain.model_dump(mode="json")
    assert RunSpec.model_validate_json(relevant.model_dump_json()) == relevant


def test_a_backfill_that_would_choose_by_another_model_is_refused(model_info):
    earlier = make_spec(model_info, Settings(describe={"frames_per_chunk": 8}), sampled(sampler="relevant"))

    with pytest.raises(ConfigurationError, match="no longer match the earlier run's relevance"):
        resolve_spec(NO_OVERRIDES, Settings(), base=earlier)
    assert resolve_spec(NO_OVERRIDES, Settings(describe={"frames_per_chunk": 8}), base=earlier)[1] == earlier


def test_a_sampler_by_the_question_is_refused_where_extraction_is_elsewhere(model_info):
    settings = Settings(run={"executor": "remote"})

    with pytest.raises(ConfigurationError, match="extract flows load none; set run"):
        make_spec(model_info, settings, sampled(sampler="relevant"))
    assert make_spec(model_info, settings).relevance is None


def test_a_sampler_by_the_question_needs_a_model_that_is_named(model_info):
    with pytest.raises(ConfigurationError, match="No image-text model is named"):
        make_spec(model_info, Settings(describe={"model": None}), sampled(sampler="relevant"))


def test_a_model_for_choosing_that_is_missing_is_named(model_info, tmp_path):
    settings = Settings(describe={"model": str(tmp_path / "gone")})

    with pytest.raises(ModelError, match=r"There is no model folder .*gone"):
        make_spec(model_info, settings, sampled(sampler="relevant"))


@pytest.mark.parametrize(
    ("flow", "parameters", "settings", "is_refused"),
    [
        ("classify", {}, {"model": {"name": None}}, True),
        ("classify", {"overrides": {"model": ""}}, {"model": {"name": None}}, True),
        ("classify", {"overrides": {"model": "m"}}, {"model": {"name": None}}, False),
        ("classify", {"options": {"model": "m"}}, {"model": {"name": None}}, True),
        ("classify", {}, {"model": {"name": "m"}}, False),
        ("classify", {}, {"model": {"name": None, "backend": "openai"}}, False),
        ("describe", {}, {"describe": {"model": None}}, True),
        ("describe", {"overrides": {"model": "m"}}, {"describe": {"model": None}}, True),
        ("describe", {"options": {"model": "m"}}, {"describe": {"model": None}}, False),
        ("describe", {}, {"model": {"name": None}, "describe": {"model": "m"}}, False),
        ("maintain", {}, {"model": {"name": None}, "describe": {"model": None}}, False),
    ],
)
def test_a_schedule_needs_a_model_by_its_parameters_or_the_settings(flow, parameters, settings, is_refused):
    refused = pytest.raises(ReelabelError, match=r"(?i)model") if is_refused else nullcontext()

    with refused:
        require_model(flow, parameters, Settings(**settings))
