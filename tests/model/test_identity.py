import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from flows.run.spec import make_spec
from infra.settings import Settings
from reelabel_engine.errors import ModelError
from reelabel_engine.fingerprint import fingerprint_folder
from tasks.domain import ModelIdentity, RunSpec
from tasks.embedding.encoder import read_encoder_info
from tasks.model.engine.vllm_backend import engine_config
from tasks.model.identity import TINY_MODEL, read_model_info, require_tokenizer
from tests.model.adapters import make_adapter, read_weights, write_weights


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(TINY_MODEL, tmp_path / "model")


def test_the_card_of_a_folder_says_what_its_frames_must_be_like():
    model_info = read_model_info(str(TINY_MODEL))

    assert model_info.location == str(TINY_MODEL)
    assert model_info.size_multiple_px == 28
    assert model_info.max_pixels == 56 * 56


def test_a_home_of_an_unknown_user_is_no_model_folder():
    with pytest.raises(ModelError, match="no model folder ~nobody-of-this-name/model;"):
        read_model_info("~nobody-of-this-name/model")


def test_a_folder_that_cannot_be_looked_up_is_refused():
    with pytest.raises(ModelError, match=r"Cannot read model folder /x+: .*too long"):
        read_model_info("/" + "x" * 5000)


def test_a_folder_without_a_tokenizer_is_refused(folder):
    require_tokenizer(read_model_info(str(folder)))
    (folder / "tokenizer.json").unlink()

    with pytest.raises(ModelError, match=r"Model folder .*model has no tokenizer; copy tokenizer\.json"):
        require_tokenizer(read_model_info(str(folder)))


def change_video_processor(folder, **changed):
    path = folder / "processor_config.json"
    processor = json.loads(path.read_text())
    processor["video_processor"] |= changed
    path.write_text(json.dumps(processor))


def test_a_pixel_limit_for_the_whole_video_is_divided_among_pairs_of_frames(folder):
    size = {"shortest_edge": 4096, "longest_edge": 25_165_824}
    change_video_processor(folder, video_processor_type="Qwen3VLVideoProcessor", size=size)

    model_info = read_model_info(str(folder))

    assert model_info.max_pixels is None
    assert [model_info.pixels_per_frame(frames) for frames in (16, 63, 64)] == [1_572_864, 393_216, 393_216]


@pytest.mark.parametrize("size", [{"height": 384, "width": 384}, {"longest_edge": 1536}, 224])  # 224 as in CLIP's
def test_an_edge_length_is_not_mistaken_for_an_area(folder, size):
    change_video_processor(folder, size=size)

    assert read_model_info(str(folder)).pixels_per_frame(16) is None


@pytest.mark.parametrize(
    ("vision", "size_multiple_px"),
    [
        pytest.param({"patch_size": 16, "spatial_merge_size": 2}, 32, id="patches merged in twos"),
        pytest.param({"patch_size": 14, "image_size": 384}, 1, id="frames scaled to the model's size"),
        pytest.param({"patch_size": [14, 14], "image_size": [448, 448]}, 1, id="the same, by edges"),
    ],
)
def test_frames_must_fit_patches_only_if_the_model_takes_any_size(folder, vision, size_multiple_px):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"vision_config": vision}))

    assert read_model_info(str(folder)).size_multiple_px == size_multiple_px


@pytest.mark.parametrize(
    "processor",
    [
        {"num_frames": "many"},
        {"num_frames": -7},
        {"max_pixels": float("inf")},
        {"max_pixels": -4},
        {"max_pixels": [56, 56]},
        {"video_processor_type": ["Qwen2VLVideoProcessor"]},
    ],
)
def test_a_video_processor_with_a_value_that_none_has_is_refused_in_one_sentence(folder, processor):
    change_video_processor(folder, **processor)

    with pytest.raises(ModelError, match=r"configuration of model .* has a value that no model has \(.+\); copy"):
        read_model_info(str(folder))


@pytest.mark.parametrize(
    "text",
    [
        '{"vision_config": "large"}',
        '{"thinker_config": [1]}',
        '{"vision_config": {"patch_size": null, "spatial_merge_size": 2}}',
        '{"vision_config": {"patch_size": 14, "spatial_merge_size": -2}}',
        '{"model_type": ["qwen2_vl"]}',
    ],
)
def test_a_configuration_with_a_value_that_no_model_has_is_refused_in_one_sentence(folder, text):
    (folder / "config.json").write_text(text)

    with pytest.raises(ModelError, match=r"configuration of model .* has a value that no model has \(.+\); copy"):
        read_model_info(str(folder))


def test_a_configuration_that_is_nested_too_deeply_is_refused(folder):
    (folder / "config.json").write_text("[" * 100_000)

    with pytest.raises(ModelError, match=r"Cannot read .*config\.json: "):
        read_model_info(str(folder))


def test_a_folder_whose_own_name_is_no_text_is_refused(folder):
    named = folder.rename(folder.with_name("model\udcff"))

    with pytest.raises(ModelError, match=r"The name or the configuration of model .*model<U\+DCFF> has a value"):
        read_model_info(str(named))


def test_a_file_whose_name_is_no_text_is_part_of_the_fingerprint(folder):
    before = fingerprint_folder(folder)
    (folder / "notes\udcff").touch()

    assert fingerprint_folder(folder) != before


def test_a_folder_without_weights_is_refused(folder):
    (folder / "model.safetensors").unlink()

    with pytest.raises(ModelError, match="no weights"):
        read_model_info(str(folder))


def test_a_folder_without_a_configuration_is_refused(tmp_path):
    with pytest.raises(ModelError, match=r"no config\.json"):
        read_model_info(str(tmp_path))


def test_a_missing_folder_is_named():
    with pytest.raises(ModelError, match="no model folder"):
        read_model_info("./nowhere")


@pytest.mark.parametrize(
    ("processor", "sampler", "frames"),
    [
        pytest.param({}, "uniform", 16, id="as many as the model states"),
        pytest.param({"num_frames": None}, "qwen2_vl", None, id="by its processor"),
        pytest.param({"video_processor_type": "Glm46VVideoProcessor"}, "glm46v", None, id="which names a number idly"),
        pytest.param(
            {"video_processor_type": "Molmo2VideoProcessor", "num_frames": 384}, "molmo2", 384, id="with its frames"
        ),
        pytest.param({"num_frames": None, "video_processor_type": None}, "qwen2_vl", None, id="by the model type"),
    ],
)
def test_a_model_card_names_the_native_sampler(folder, processor, sampler, frames):
    change_video_processor(folder, **processor)

    model_info = read_model_info(str(folder))

    assert (model_info.native_sampler, model_info.native_frames, model_info.native_doubt) == (sampler, frames, "")


def test_a_processor_without_a_sampler_is_named_and_samples_as_many_frames_uniformly(folder):
    change_video_processor(folder, video_processor_type="InternVL\x1b[31mVideoProcessor", num_frames=8)

    model_info = read_model_info(str(folder))

    assert (model_info.native_sampler, model_info.native_frames) == ("uniform", 8)
    assert model_info.native_doubt == "no sampler is known for its video processor InternVL␛[31mVideoProcessor"


def test_a_model_that_names_no_processor_is_named_by_its_type(folder):
    change_video_processor(folder, video_processor_type=None, num_frames=None)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "another"}))

    model_info = read_model_info(str(folder))

    assert (model_info.native_sampler, model_info.native_doubt) == (
        "uniform",
        "no sampler is known for its model type another",
    )


def test_the_card_of_an_adapter_is_that_of_its_base_model_and_names_both(tmp_path):
    adapter, base = make_adapter(tmp_path / "adapter", TINY_MODEL), read_model_info(str(TINY_MODEL))

    model_info = read_model_info(str(adapter))

    identity = ModelIdentity(name="adapter", fingerprint=fingerprint_folder(adapter), base_model=base.identity)
    assert model_info == replace(base, identity=identity, adapter=str(adapter))
    assert engine_config(model_info, Settings()).adapter == str(adapter)
    spec = make_spec(model_info, Settings())
    assert spec.spec_id != make_spec(base, Settings()).spec_id
    assert RunSpec.model_validate_json(spec.model_dump_json()) == spec


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"peft_type": "IA3"}, "is no LoRA adapter of a named model; merge it"),
        ({"base_model_name_or_path": None}, "is no LoRA adapter of a named model; merge it"),
        (
            {"base_model_name_or_path": "/gone"},
            "The base_model_name_or_path of adapter .* There is no model folder /gone",
        ),
        ({"base_model_name_or_path": "."}, "The base_model_name_or_path of adapter .* is an adapter, too; merge that"),
        ({"r": 0}, "has no valid r, lora_alpha and target_modules; correct it"),
        (
            {"alpha_pattern": {"q_proj": 8}, "rank_pattern": {"q_proj": 8}},
            "sets alpha_pattern, rank_pattern, which not",
        ),
        ({"init_lora_weights": "pissa"}, "sets init_lora_weights, which not every vLLM applies; merge the adapter"),
        ({"bias": "all"}, "sets bias, which"),
        ({"of_the_future": {"a": 1}}, "sets of_the_future, which"),
    ],
)
def test_an_adapter_that_would_not_be_applied_as_configured_is_refused_in_one_sentence(tmp_path, changed, fault):
    with pytest.raises(ModelError, match=fault):
        read_model_info(str(make_adapter(tmp_path / "adapter", TINY_MODEL, **changed)))


def test_an_adapter_may_state_what_changes_nothing(tmp_path):
    neutral = {"bias": "none", "init_lora_weights": True, "use_rslora": True, "loftq_config": {}, "use_dora": False}
    of_training = {"lora_dropout": 0.1, "rank_pattern": {}, "modules_to_save": None, "peft_version": "0.18.0"}
    adapter = make_adapter(tmp_path / "adapter", TINY_MODEL, **neutral, **of_training)
    (adapter / "optimizer.pt").touch()

    assert read_model_info(str(adapter)).adapter == str(adapter)


@pytest.mark.parametrize(
    ("file", "fault"),
    [
        pytest.param(
            "non_lora_state_dict.bin", r"outside adapter_model\.safetensors, in non_lora_state_dict\.bin, which"
        ),
        pytest.param("model.safetensors", r"has both a model and a LoRA adapter; move adapter_config\.json"),
    ],
)
def test_an_adapter_beside_other_weights_is_refused(tmp_path, file, fault):
    adapter = make_adapter(tmp_path / "adapter", TINY_MODEL)
    if file == "model.safetensors":
        shutil.copytree(TINY_MODEL, adapter, dirs_exist_ok=True)
    (adapter / file).touch()

    with pytest.raises(ModelError, match=fault):
        read_model_info(str(adapter))


def test_an_adapter_with_weights_that_are_not_of_low_rank_or_none_is_refused(tmp_path):
    adapter = make_adapter(tmp_path / "adapter", TINY_MODEL)
    weights = adapter / "adapter_model.safetensors"
    saved, name = read_weights(weights), "base_model.model.model.embed_tokens.base_layer.weight"

    for content, fault in (
        (
            saved | {name: np.zeros((2, 2))},
            f"has 1 weight besides those of LoRA, such as {name}, which vLLM would leave",
        ),
        ({}, "is empty; save the adapter again"),
    ):
        write_weights(weights, content)
        with pytest.raises(ModelError, match=fault):
            read_model_info(str(adapter))
    for content in (
        b"",
        b"[1]",
        (3).to_bytes(8, "little") + b"[1]",
        b"\xff" * 20,
        (50_000).to_bytes(8, "little") + b"[" * 50_000,
    ):
        weights.write_bytes(content)
        with pytest.raises(ModelError, match=r"Cannot read .* as safetensors; copy it again"):
            read_model_info(str(adapter))
    weights.unlink()
    with pytest.raises(ModelError, match=r"has no adapter_model\.safetensors; copy it there"):
        read_model_info(str(adapter))


def test_a_base_is_found_beside_the_adapter_or_in_the_working_directory(tmp_path, folder, monkeypatch):
    base = read_model_info(str(folder))
    adapter = make_adapter(tmp_path / "beside", TINY_MODEL, base_model_name_or_path="../model")
    here = make_adapter(tmp_path / "here", TINY_MODEL, base_model_name_or_path="./model")

    assert read_model_info(str(adapter)).location == base.location
    monkeypatch.chdir(tmp_path)
    assert read_model_info(str(here)).identity.base_model == base.identity


def test_an_adapter_of_an_adapter_or_of_itself_is_refused(tmp_path):
    one = make_adapter(tmp_path / "one", TINY_MODEL, base_model_name_or_path=str(tmp_path / "other"))
    other = make_adapter(tmp_path / "other", TINY_MODEL, base_model_name_or_path=str(one))

    for each in (one, other):
        with pytest.raises(ModelError, match="is an adapter, too; merge that one into its model's folder"):
            read_model_info(str(each))


def test_an_adapter_is_no_image_text_model(tmp_path):
    with pytest.raises(ModelError, match="is a LoRA adapter; merge it into the model's folder"):
        read_encoder_info(Settings(), str(make_adapter(tmp_path / "encoder", TINY_MODEL)))
