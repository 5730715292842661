"""Questions on several videos and images: our engine answers as `LLM.chat` does, and so does a server."""

import json
import pickle
from pathlib import Path

import pytest

from reelabel.errors import ConfigurationError
from reelabel_engine.prompts import choice_tokens, score_choices
from reelabel_engine.protocol import Batch, EngineConfig, QuestionMedium
from tasks.domain import Answer, MediaCounts
from tasks.model.engine.process import EngineProcess
from tasks.model.identity import TINY_MODEL, read_model_info
from tasks.model.prompts.ambiguity import load_tokenizer
from tests.engine_python import run_by_engine
from tests.model.factories import frame_file, question
from tests.model.images import image_file

pytestmark = pytest.mark.system

MEDIA = MediaCounts(videos=2, images=1)
CONFIG = EngineConfig(model=str(TINY_MODEL), dtype="float32", max_videos=MEDIA.videos, max_images=MEDIA.images)
FILES = {"a": frame_file(1), "b": frame_file(2, repeats=1), "p": image_file(3), "q": image_file(4)}
SHOWN = {
    "two videos": (("video", "a"), ("video", "b")),
    "the other way round": (("video", "b"), ("video", "a")),
    "a video and an image": (("video", "a"), ("image", "p")),
    "an image and a video": (("image", "p"), ("video", "a")),
    "videos around an image": (("video", "a"), ("image", "q"), ("video", "b")),
    "one video twice": (("video", "a"), ("video", "a")),
    "one video": (("video", "a"),),
}


def about(*shown, **changed):
    media = tuple(QuestionMedium(*each) for each in shown)
    video = next(each.file_id for each in media if each.kind == "video")
    return question(video_id=video, media=media if len(media) > 1 else (), **changed)


QUESTIONS = {name: about(*shown) for name, shown in SHOWN.items()}
BATCH = Batch(frame_files=FILES, questions=tuple(QUESTIONS.values()))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("several")


@pytest.fixture(scope="module")
def engine(folder):
    with EngineProcess(CONFIG, log_path=folder / "engine.log", start_timeout_s=240) as engine:
        yield engine


@pytest.fixture(scope="module")
def answers(engine):
    return dict(zip(SHOWN, engine.answer(BATCH), strict=True))


@pytest.fixture(scope="module")
def reference(folder):
    """What `LLM.chat` says, and what our renderer makes, of each question."""
    tokens = choice_tokens(
        BATCH.questions[0].choices, scoring="letter", encode=load_tokenizer(read_model_info(str(TINY_MODEL)))
    )
    allowed = sorted(set().union(*tokens))
    (folder / "questions.pickle").write_bytes(pickle.dumps((CONFIG, FILES, BATCH.questions, allowed)))
    script = Path(__file__).parents[1] / "chat_about_media.py"
    run_by_engine(script, folder / "questions.pickle", folder / "reference.json", cwd=folder)
    reference = json.loads((folder / "reference.json").read_text())
    for each in reference:
        logprobs = {int(token): value for token, value in each["logprobs"].items()}
        each["probabilities"] = score_choices(tokens, logprobs).probabilities
    return dict(zip(SHOWN, reference, strict=True))


@pytest.mark.parametrize("name", SHOWN)
def test_a_prompt_has_the_tokens_of_vllms_own_chat(reference, name):
    assert reference[name]["ours"] == reference[name]["chat"]


@pytest.mark.parametrize("name", SHOWN)
def test_our_engine_answers_as_vllms_own_chat(reference, answers, name):
    assert isinstance(answers[name], Answer), answers[name]
    assert answers[name].probabilities == pytest.approx(reference[name]["probabilities"], abs=1e-4)
    assert answers[name].prompt_tokens == len(reference[name]["chat"])


def test_what_is_shown_and_in_which_order_matters(answers):
    # The demo's model is sure of most of them: their probabilities differ in later digits.
    assert len({answer.probabilities for answer in answers.values()}) == len(SHOWN)


def test_questions_that_show_the_same_share_its_prefill(engine):
    shown = (("video", "a"), ("image", "q"), ("video", "b"))
    questions = tuple(about(*shown, prompt=f"{colour} or not?") for colour in ("Red", "Green", "Blue"))
    files = FILES | {"a": frame_file(20), "b": frame_file(21)}

    first, *others = engine.answer(Batch(frame_files=files, questions=questions))

    shown_tokens = 2 * 8 * 2 // 2 * 4 + 4
    assert first.cached_tokens < 32
    assert all(answer.cached_tokens >= shown_tokens // 32 * 32 for answer in others)


def test_a_damaged_image_fails_only_the_questions_that_show_it(engine):
    files = FILES | {"p": b"no frame file"}

    replies = dict(zip(SHOWN, engine.answer(Batch(frame_files=files, questions=BATCH.questions)), strict=True))

    failed = {name for name, reply in replies.items() if not isinstance(reply, Answer)}
    assert failed == {"a video and an image", "an image and a video"}
    assert {replies[name].code for name in failed} == {"frame_file_damaged"}


def test_the_order_in_a_batch_changes_no_answer(engine, answers):
    shuffled = [*reversed(SHOWN), *SHOWN]
    batch = Batch(frame_files=FILES, questions=tuple(QUESTIONS[name] for name in shuffled))

    for name, reply in zip(shuffled, engine.answer(batch), strict=True):
        assert reply.probabilities == pytest.approx(answers[name].probabilities, abs=1e-4)


def test_a_server_answers_as_our_engine_does(vllm_server, make_backend, answers):
    backend = make_backend(vllm_server, media=MEDIA)

    replies = dict(zip(SHOWN, backend.answer(BATCH), strict=True))

    for name, reply in replies.items():
        assert reply.probabilities == pytest.approx(answers[name].probabilities, abs=1e-4), name
        assert reply.prompt_tokens == answers[name].prompt_tokens, name


def test_a_server_that_takes_fewer_videos_is_refused_before_it_is_asked(vllm_server, make_backend):
    with pytest.raises(
        ConfigurationError, match=r"does not accept 5 videos and 1 image in a question: .*At most 4 video"
    ):
        make_backend(vllm_server, media=MediaCounts(5, 1)).wait_ready()
    with pytest.raises(ConfigurationError, match=r"server\.frames png cannot show 2 videos and 1 image in a question"):
        make_backend(vllm_server, media=MEDIA, frames="png").wait_ready()


def test_one_video_and_images_may_travel_as_pngs(vllm_server, make_backend, answers):
    backend = make_backend(vllm_server, media=MediaCounts(1, 1), frames="png")

    [reply] = backend.answer(BATCH.only((QUESTIONS["a video and an image"],)))

    assert reply.probabilities == pytest.approx(answers["a video and an image"].probabilities, abs=1e-4)
