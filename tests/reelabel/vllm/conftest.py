"""A clip, its frame file, and what our engine answers about it, which every way into vLLM must match."""

import base64
from dataclasses import dataclass, field

import pytest

from reelabel.extract import extract_local
from reelabel.options import Limits
from reelabel.sampling.options import Sampling
from reelabel_engine.prompts import choice_tokens, score_choices
from reelabel_engine.protocol import Batch, EngineConfig, Question
from tasks.model.engine.process import EngineProcess
from tasks.model.identity import TINY_MODEL, read_model_info
from tasks.model.prompts.ambiguity import load_tokenizer
from tests.clips import write_clip
from tests.frame_files import frame_file_of
from tests.reelabel.vllm.beside_vllm import build_wheel, create_environment, install

SAMPLING = {"num_frames": 6, "size_multiple_px": 28, "max_pixels": 3136}
CHOICES = ("red", "green", "blue", "yellow")
TEXT = "Which colour is the shape?\nA. red\nB. green\nC. blue\nD. yellow\nAnswer with one letter."
MEDIA = {"video": {"video_backend": "pyav_keyframes", **SAMPLING}}


@dataclass(frozen=True)
class ChatInputs:
    """One video in every form in which vLLM may be given it."""

    folder: object
    urls: dict = field(repr=False)
    tokens: tuple
    expected: tuple

    @property
    def allowed(self):
        return sorted(set().union(*self.tokens))

    def probabilities(self, logprobs):
        return score_choices(self.tokens, {int(token): value for token, value in logprobs.items()}).probabilities


def chat_about(url):
    part = {"type": "video_url", "video_url": {"url": url}}
    return [{"role": "user", "content": [part, {"type": "text", "text": TEXT}]}]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def bare_vllm(tmp_path_factory):
    """A Python with vLLM, where nothing of ours is installed."""
    return create_environment(tmp_path_factory.mktemp("bare") / "venv")


@pytest.fixture(scope="session")
def vllm_python(tmp_path_factory, wheel):
    """A Python with vLLM, after `pip install reelabel`."""
    python = create_environment(tmp_path_factory.mktemp("alone") / "venv")
    install(python, wheel)
    return python


@pytest.fixture(scope="session")
def vllm_python_with_arrow(tmp_path_factory, wheel):
    """A Python with vLLM, after `pip install 'reelabel[arrow]'`."""
    python = create_environment(tmp_path_factory.mktemp("arrow") / "venv")
    install(python, wheel, "[arrow]")
    return python


@pytest.fixture(scope="session")
def chat_inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("media")
    video = write_clip(folder / "clip.mp4")
    frames = extract_local(video, sampling=Sampling(**SAMPLING), limits=Limits())
    data = frame_file_of(frames, source_uri="v", fingerprint="e", sampling=Sampling(**SAMPLING))
    (folder / "clip.arrow").write_bytes(data)
    (folder / "text.mp4").write_text("This is no video.")
    (folder / "cut.arrow").write_bytes(data[:-100])
    encode = load_tokenizer(read_model_info(str(TINY_MODEL)))
    return ChatInputs(
        folder=folder,
        urls={
            "video file": video.as_uri(),
            "video data": "data:video/mp4;base64," + base64.b64encode(video.read_bytes()).decode(),
            "frame file": (folder / "clip.arrow").as_uri(),
            "frame data": "data:application/vnd.apache.arrow.file;base64," + base64.b64encode(data).decode(),
            "no video": (folder / "text.mp4").as_uri(),
            "cut frame file": (folder / "cut.arrow").as_uri(),
        },
        tokens=choice_tokens(CHOICES, scoring="letter", encode=encode),
        expected=_ask_our_engine(data, folder),
    )


def _ask_our_engine(data, folder):
    question = Question(video_id="v", text=TEXT, system_prompt=None, choices=CHOICES, scoring="letter")
    config = EngineConfig(model=str(TINY_MODEL))
    with EngineProcess(config, log_path=folder / "engine.log", start_timeout_s=240) as engine:
        [answer] = engine.answer(Batch(frame_files={"v": data}, questions=(question,)))
    return answer.probabilities
