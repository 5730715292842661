"""Every family named in the documentation, from a video's frames to an answer through real vLLM."""

import json
import pickle
import re
import shutil
from pathlib import Path

import pytest

from infra.settings import Settings
from reelabel_engine.errors import ModelError
from reelabel_engine.protocol import Batch, EngineConfig
from tasks.model.engine.process import EngineProcess
from tasks.model.engine.vllm_backend import engine_config
from tasks.model.identity import read_model_info
from tests.clips import write_clip
from tests.engine_python import run_by_engine
from tests.model.families.frames import frame_file
from tests.model.families.question import NUM_FRAMES, QUESTION
from tests.model.families.saved import save_all

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("families")]

FAMILIES = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "glm4v", "llava_onevision", "internvl")
TEXT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# The clip's four keyframes are shown at 0, 0, 1, 2, 2 and 3 seconds of 4.
SECONDS_PER_PAIR = 2 * 4 / NUM_FRAMES


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Models by family, and what their processors make of a question."""
    folder = tmp_path_factory.mktemp("families")
    write_clip(folder / "clip.mp4", size=(160, 120))
    save_all(FAMILIES, folder)
    texts = shutil.copytree(folder / "qwen2_vl", folder / "texts")
    (texts / "chat_template.jinja").write_text(TEXT_TEMPLATE)
    settings, inputs = Settings(sampling={"num_frames": NUM_FRAMES}, model={"dtype": "float32"}), {}
    for family in (*FAMILIES, "texts"):
        model = folder / family
        files = {number: frame_file(model, folder / "clip.mp4", num_frames=number) for number in (NUM_FRAMES, 1)}
        inputs[family] = engine_config(read_model_info(str(model)), settings), files
    (folder / "inputs.pickle").write_bytes(pickle.dumps(inputs))
    run_by_engine(Path(__file__).with_name("look_at_inputs.py"), folder, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def seen(folder):
    return json.loads((folder / "seen.json").read_text())


@pytest.mark.parametrize("family", FAMILIES)
def test_one_token_is_answered_with_probabilities_over_the_choices(folder, seen, family):
    data = frame_file(folder / family, folder / "clip.mp4", num_frames=NUM_FRAMES)
    config = EngineConfig(model=str(folder / family), dtype="float32")

    with EngineProcess(config, log_path=folder / f"{family}.log", start_timeout_s=240) as engine:
        [answer] = engine.answer(Batch(frame_files={"v": data}, questions=(QUESTION,)))

    assert sum(answer.probabilities) == pytest.approx(1)
    assert 0 < answer.choice_mass < 0.05, "random weights mean none of the choices"
    assert answer.prompt_tokens == seen[f"{family} {NUM_FRAMES}"]["tokens"]


@pytest.mark.parametrize("family", [*FAMILIES, "texts"])
def test_two_videos_have_the_tokens_of_each(seen, family):
    alone, both = seen[f"{family} {NUM_FRAMES}"], seen[f"{family} several"]

    if family == "glm4v":
        assert "At most 1 video(s) may be provided in one prompt" in both["refused"]
    else:
        assert both["placeholders"] == [["video", alone["video_tokens"]]] * 2


def test_a_template_that_takes_text_gets_placeholders_in_the_order_shown(seen):
    mixed = seen["texts mixed"]

    assert [kind for kind, _ in mixed["placeholders"]] == ["image", "video", "image", "video"]
    pads = re.findall(r"<\|(\w+)_pad\|>", mixed["chat"])
    assert pads == ["image", "video", "image", "video"]


def test_a_model_that_takes_one_video_is_refused_for_several_when_it_is_loaded(folder):
    config = EngineConfig(model=str(folder / "glm4v"), dtype="float32", max_videos=2, max_images=1)

    with (
        EngineProcess(config, log_path=folder / "several.log", start_timeout_s=240) as engine,
        pytest.raises(ModelError, match="takes at most 1 video in a question, but jobs show 2 videos and 1 image"),
    ):
        engine.wait_ready()


@pytest.mark.parametrize(
    ("family", "size_px", "tokens"),
    [
        pytest.param("qwen2_vl", (84, 112), 3 * 12, id="qwen2_vl: a quarter of the patches per pair of frames"),
        pytest.param("qwen2_5_vl", (84, 112), 3 * 12, id="qwen2_5_vl: the same"),
        pytest.param("qwen3_vl", (64, 96), 3 * 6, id="qwen3_vl: the same with larger patches"),
        pytest.param("glm4v", (56, 84), 2 * 6, id="glm4v: the same, per frame"),
        pytest.param(
            "llava_onevision", (120, 160), NUM_FRAMES * 4 + 1, id="llava_onevision: per frame, with line ends"
        ),
        pytest.param("internvl", (120, 160), NUM_FRAMES * 4, id="internvl: per frame"),
    ],
)
def test_every_frame_arrives_in_the_tokens_of_its_size(seen, family, size_px, tokens):
    found = seen[f"{family} {NUM_FRAMES}"]

    assert found["frames"] == [NUM_FRAMES, *size_px, 3]
    assert found["video_tokens"] == tokens


@pytest.mark.parametrize(
    ("family", "patch_px"), [("qwen2_vl", 14), ("qwen2_5_vl", 14), ("qwen3_vl", 16), ("glm4v", 14)]
)
@pytest.mark.parametrize("num_frames", [NUM_FRAMES, 1])
def test_frames_are_extracted_at_the_size_that_the_processor_keeps(seen, family, patch_px, num_frames):
    found = seen[f"{family} {num_frames}"]

    _, height, width, _ = found["frames"]
    assert found["values"]["video_grid_thw"][1:] == [height // patch_px, width // patch_px]


@pytest.mark.parametrize("family", ["llava_onevision", "internvl"])
def test_a_processor_with_a_fixed_size_gets_unscaled_frames(folder, seen, family):
    assert read_model_info(str(folder / family)).size_multiple_px == 1
    assert seen[f"{family} {NUM_FRAMES}"]["shapes"]["pixel_values_videos"] == [NUM_FRAMES, 3, 56, 56]


def test_qwen2_5_is_told_the_seconds_from_pair_to_pair(seen):
    assert seen[f"qwen2_5_vl {NUM_FRAMES}"]["values"]["second_per_grid_ts"] == pytest.approx(SECONDS_PER_PAIR)


def test_qwen3_reads_the_time_of_each_pair_of_frames(seen):
    found = seen[f"qwen3_vl {NUM_FRAMES}"]

    assert found["values"]["timestamps"] == [0.0, 1.5, 2.5]
    assert re.findall(r"<(\d\.\d) seconds>", found["prompt"]) == ["0.0", "1.5", "2.5"]


def test_glm_reads_the_second_of_each_pair_of_distinct_frames(seen):
    assert re.findall(r"<\|end_of_image\|>(\d+)<", seen[f"glm4v {NUM_FRAMES}"]["prompt"]) == ["0", "2"]


def test_internvl_reads_the_number_of_each_frame(seen):
    numbers = re.findall(r"Frame(\d): <img>", seen[f"internvl {NUM_FRAMES}"]["prompt"])

    assert numbers == ["1", "2", "3", "4", "5", "6"]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_single_frame_is_shown(seen, family):
    assert seen[f"{family} 1"]["video_tokens"] > 0


@pytest.mark.parametrize("family", FAMILIES)
def test_the_system_prompt_reaches_the_model_before_the_video(seen, family):
    assert re.search(r"Be brief\..*(vision_start|video|img).*Which colour", seen[f"{family} 1"]["prompt"], re.DOTALL)


def test_a_text_only_chat_template_gets_the_video_as_text(seen):
    assert seen["texts 1"]["video_tokens"] == seen["qwen2_vl 1"]["video_tokens"]
    assert "<|im_start|>user\n<|vision_start|><|video_pad|><|vision_end|>\nWhich" in seen["texts 1"]["chat"]


@pytest.mark.parametrize("family", [*FAMILIES, "texts"])
def test_special_tokens_in_a_text_are_text(seen, family):
    found = seen[f"{family} specials"]

    ids, decoded = found["obeyed"]
    assert ids == found["plain"]
    assert decoded.count(found["spelled"]) == 3


@pytest.mark.parametrize("family", [*FAMILIES, "texts"])
def test_a_text_without_special_tokens_is_encoded_in_one_piece_with_its_template(seen, family):
    assert seen[f"{family} {NUM_FRAMES}"]["is_encoded_whole"]


def test_the_positions_of_a_model_are_those_of_the_engines_rotary_table(seen):
    assert seen["rotary tables"] == {"default": [8192, 8192], "yarn": [16_384, 16_384], "openpangu": [8192, 8192]}
