"""A model that takes images only is shown a video's frames as images; others that take no videos are refused."""

import json
import shutil

import pytest

from flows.run.spec import make_spec
from infra.settings import Settings
from reelabel.frames.frame_file import read_frames
from reelabel.integrations.vllm.video_input import video_input
from reelabel_engine.errors import ModelError
from reelabel_engine.protocol import Batch, PreviewRequest
from tasks.model.engine.process import EngineProcess, preview_prompt
from tasks.model.engine.vllm_backend import engine_config
from tasks.model.identity import read_model_info
from tests.clips import write_clip
from tests.model.families.frames import frame_file
from tests.model.families.question import NUM_FRAMES, QUESTION
from tests.model.families.saved import saved

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("families")]

TOKENS_PER_FRAME = 4


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return saved("idefics3", tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="module")
def config(model):
    settings = Settings(model={"dtype": "float32"}, sampling={"num_frames": NUM_FRAMES})
    return engine_config(read_model_info(str(model)), settings)


@pytest.fixture(scope="module")
def frames(model):
    clip, other = (
        write_clip(model.parent / f"{name}.mp4", size=(160, 120), **options)
        for name, options in (("clip", {}), ("other", {"gop": 6}))
    )
    return [frame_file(model, each, num_frames=NUM_FRAMES) for each in (clip, other)]


def test_the_spec_says_that_frames_are_images(model):
    assert make_spec(read_model_info(str(model)), Settings()).frames_as == "images"


def test_every_frame_is_an_image_in_the_prompt(config, frames):
    video = video_input(read_frames(frames[0]))

    shown = preview_prompt(PreviewRequest(config=config, question=QUESTION, media=(video,)))

    assert shown.text.count("<global-img>") == NUM_FRAMES
    assert shown.text.count("<image>") == NUM_FRAMES * TOKENS_PER_FRAME
    assert shown.text.index("Be brief.") < shown.text.index("<image>") < shown.text.index("Which colour")
    assert shown.refusals == ()


def test_answers_depend_on_the_frames(config, frames, tmp_path):
    questions = (QUESTION, QUESTION)
    with EngineProcess(config, log_path=tmp_path / "engine.log", start_timeout_s=240) as engine:
        first, again = engine.answer(Batch(frame_files={"v": frames[0]}, questions=questions))
        [other] = engine.answer(Batch(frame_files={"v": frames[1]}, questions=(QUESTION,)))

    assert sum(first.probabilities) == pytest.approx(1)
    assert again.cached_tokens >= 32, "questions on one video share its prefill"
    assert again.probabilities == pytest.approx(first.probabilities, abs=1e-4)
    assert other.probabilities != pytest.approx(first.probabilities, abs=1e-6)


def test_another_model_that_takes_no_videos_is_refused_when_it_is_loaded(model, config, tmp_path):
    unknown = tmp_path / "unknown"
    shutil.copytree(model, unknown)
    as_video = type(config)(model=str(unknown), dtype="float32")

    with (
        EngineProcess(as_video, log_path=tmp_path / "engine.log", start_timeout_s=240) as engine,
        pytest.raises(ModelError, match="vLLM's Idefics3ForConditionalGeneration takes no videos; use another model"),
    ):
        engine.wait_ready()


def test_smolvlm_needs_a_package_that_its_refusal_names(model, tmp_path):
    folder = tmp_path / "smolvlm"
    shutil.copytree(model, folder)
    for name, changed in (
        ("config.json", {"model_type": "smolvlm", "architectures": ["SmolVLMForConditionalGeneration"]}),
        ("processor_config.json", {"processor_class": "SmolVLMProcessor"}),
    ):
        path = folder / name
        path.write_text(json.dumps(json.loads(path.read_text()) | changed))
    size = {"size": {"longest_edge": 56}, "max_image_size": {"longest_edge": 56}}
    video = {"video_processor_type": "SmolVLMVideoProcessor"} | size
    (folder / "video_preprocessor_config.json").write_text(json.dumps(video))
    model_info = read_model_info(str(folder))

    assert not model_info.takes_videos
    with (
        EngineProcess(engine_config(model_info, Settings()), log_path=tmp_path / "log", start_timeout_s=240) as engine,
        pytest.raises(ModelError, match="num2words"),
    ):
        engine.wait_ready()
