import hashlib
import json
import os
import shutil
from dataclasses import replace

import pytest

from flows.run.spec import make_spec
from infra.settings import Settings
from reelabel_engine.errors import ModelError
from tasks.domain import ModelIdentity, RunSpec
from tasks.embedding.encoder import read_encoder_info
from tasks.model.engine.vllm_backend import engine_config
from tasks.model.identity import TINY_MODEL, fingerprint_folder, read_model_info, require_tokenizer
from tests.model.adapters import make_adapter


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(TINY_MODEL, tmp_path / "model")


def test_the_card_of_a_folder_says_what_its_frames_must_be_like():
    model_info = read_model_info(str(TINY_MODEL))

    assert model_info.location == str(TINY_MODEL)
    assert model_info.size_multiple_px == 28
    assert model_info.max_pixels == 56 * 56


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


@pytest.mark.parametrize("size", [{"height": 384, "width": 384}, {"longest_edge": 1536}])
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


def test_a_moved_folder_is_the_same_model(folder, tmp_path):
    before = fingerprint_folder(folder)
    moved = folder.rename(tmp_path / "elsewhere")

    assert fingerprint_folder(moved) == before


def test_different_weights_are_a_different_model(folder):
    before = fingerprint_folder(folder)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\0")

    assert fingerprint_folder(folder) != before


@pytest.fixture
def large_weights(folder, tmp_path, monkeypatch):
    """The folder's weights, too large to be read each time; digests are kept in a folder of this test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    weights = folder / "model.safetensors"
    os.truncate(weights, 70_000_000)
    return weights


@pytest.mark.parametrize("changed_byte", [0, 40_000_001, 69_999_999])
def test_a_changed_byte_anywhere_in_large_weights_is_a_different_model(folder, large_weights, changed_byte):
    before = fingerprint_folder(folder)

    with large_weights.open("r+b") as file:
        file.seek(changed_byte)
        file.write(b"\xfe")

    assert fingerprint_folder(folder) != before


def test_large_weights_are_read_once_and_again_where_nothing_can_be_kept(folder, large_weights, tmp_path, monkeypatch):
    read, file_digest = [], hashlib.file_digest
    monkeypatch.setattr(hashlib, "file_digest", lambda file, name: read.append(file.name) or file_digest(file, name))
    expected = fingerprint_folder(folder)

    assert fingerprint_folder(folder) == expected
    assert len(read) == 1
    [kept] = (tmp_path / "caches" / "reelabel" / "digests").iterdir()
    kept.write_text("damaged")
    assert fingerprint_folder(folder) == expected
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "config.json"))  # which is no folder
    assert fingerprint_folder(folder) == expected
    assert read == [str(large_weights)] * 3


def test_notes_that_tools_leave_in_a_models_folder_do_not_change_the_model(folder):
    before = fingerprint_folder(folder)

    notes = folder / ".cache" / "huggingface" / "download" / "model.safetensors.metadata"
    notes.parent.mkdir(parents=True)
    notes.write_text("1764000000.0")
    (folder / ".gitattributes").write_text("*.safetensors filter=lfs")

    assert fingerprint_folder(folder) == before


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


def test_an_adapter_that_cannot_be_added_is_refused_in_one_sentence(tmp_path):
    for number, (changed, fault) in enumerate(
        (
            ({"peft_type": "IA3"}, "is no LoRA adapter of a named model; merge it"),
            ({"base_model_name_or_path": None}, "is no LoRA adapter of a named model; merge it"),
            (
                {"base_model_name_or_path": "/gone"},
                "names a base model that cannot be used: There is no model folder /gone",
            ),
            (
                {"base_model_name_or_path": str(tmp_path / "0")},
                "names a base model that cannot be used: Adapter .*0 is no",
            ),
        )
    ):
        folder = make_adapter(tmp_path / str(number), TINY_MODEL, **changed)
        with pytest.raises(ModelError, match=fault):
            read_model_info(str(folder))
    nested = make_adapter(tmp_path / "one", TINY_MODEL)
    with pytest.raises(ModelError, match="adapts another adapter; merge that into its model's folder"):
        read_model_info(str(make_adapter(tmp_path / "other", TINY_MODEL, base_model_name_or_path=str(nested))))
    (nested / "adapter_model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"has no adapter_model\.safetensors; copy it there"):
        read_model_info(str(nested))
    with pytest.raises(ModelError, match="is a LoRA adapter; merge it into the model's folder"):
        read_encoder_info(Settings(), str(make_adapter(tmp_path / "encoder", TINY_MODEL)))
