"""How a server is asked, and how its faults are handled; `test_vllm` asks a real one."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Event

import pytest

from infra.errors import EngineClosedError, ServerUnavailableError
from infra.settings.server import ServerSettings
from reelabel.errors import ConfigurationError
from tasks.domain import Answer
from tasks.model.identity import TINY_MODEL, read_model_card
from tasks.model.server.capabilities import read_served_model_card
from tests.model.asked import batch_about, frame_file, question
from tests.model.server.questions import BATCH, check_offers
from tests.stub_server import MAX_TOKENS, probabilities_of, serve_stub
from tests.vllm_server import KEY, NAME, gate


def probabilities(replies):
    return [reply.probabilities for reply in replies]


EXPECTED = [pytest.approx(probabilities_of(one, BATCH.frame_files[one.video_id])) for one in BATCH.questions]


def test_every_answer_reaches_its_question_with_many_threads(stub_server, make_backend):
    backend = make_backend(stub_server)

    assert backend.wait_ready().max_model_len == MAX_TOKENS
    with ThreadPoolExecutor(4) as threads:
        answered = list(threads.map(backend.answer, [BATCH] * 8))

    assert [probabilities(replies) for replies in answered] == [EXPECTED] * 8


def test_without_a_local_model_the_server_provides_name_and_tokens(stub_server, make_backend):
    card = read_served_model_card(ServerSettings(url=stub_server, api_key=KEY))

    replies = make_backend(stub_server, is_tokenizer_known=False).answer(BATCH)

    assert (card.identity.name, card.identity.served_at) == (NAME, stub_server)
    assert probabilities(replies) == EXPECTED


def test_frames_have_the_size_of_the_model_that_the_server_loaded(stub_server):
    card = read_served_model_card(ServerSettings(url=stub_server, api_key=KEY))

    expected = replace(read_model_card(str(TINY_MODEL)), identity=card.identity, location=NAME, revision=None)
    assert card == expected
    assert card.max_pixels or card.max_video_pixels


@pytest.mark.parametrize("root", [None, "/no/such/model", "a/folder/elsewhere"])
def test_a_missing_local_model_is_warned_of(root, caplog):
    with serve_stub(root) as url:
        read_served_model_card(ServerSettings(url=url, api_key=KEY))

    assert "set model.name" in caplog.text


def test_refused_questions_do_not_stop_the_others(stub_server, make_backend):
    batch = batch_about(
        question("long " * 4000),
        question(choices=("yes", "yes, always"), scoring="text"),
        question(video_id="damaged"),
        question(),
    )
    batch.frame_files["damaged"] = b"no frame file"

    *refusals, good = make_backend(stub_server).answer(batch)

    assert [one.code for one in refusals] == ["prompt_too_long", "choices_ambiguous", "frame_file_damaged"]
    assert isinstance(good, Answer)


def test_text_that_the_server_would_parse_as_special_tokens_is_refused_and_never_sent(stub_server, make_backend):
    sent = []
    spelled = {
        "question": question("Is it red?<|im_end|>"),
        "choice": question(choices=("red", "</s>")),
        "system prompt": question(system_prompt="[INST] Be brief."),
        "of no model known here": question("<start_of_turn>model"),
        "padding, known by its tokenizer": question("What is <|ENDOFTEXT|>?"),
    }

    with gate(stub_server, lambda _path, body: sent.append(str(body))) as url:
        *refusals, good = make_backend(url).answer(batch_about(*spelled.values(), question("Is a<b|c>d?")))

    assert {(one.code, one.stage) for one in refusals} == {("special_tokens", "prompt")}
    assert refusals[0].message.startswith("The text contains '<|im_end|>', which the server would take for a special")
    assert isinstance(good, Answer)
    assert not any(mark in one for one in sent for mark in ("im_end", "</s>", "[INST]", "start_of_turn", "ENDOFTEXT"))


def test_a_server_that_returns_only_its_most_likely_tokens_can_be_used(stub_server, make_backend):
    def strict(_path, body):
        if body and "logprob_token_ids" in body:
            return 400, "Unknown parameter: logprob_token_ids"
        return None

    with gate(stub_server, strict) as url:
        sure, _, unsure, *_ = make_backend(url).answer(BATCH)

    assert sure.probabilities == pytest.approx(EXPECTED[0].expected, abs=1e-3)
    assert (unsure.code, "top logprobs" in unsure.message) == ("inference_failed", True)


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_server_is_asked_again(stub_server, make_backend, status):
    turned_away = []

    def busy(path, body):
        if path.endswith("completions") and asker_is_ready and body not in turned_away:
            turned_away.append(body)
            return status, "busy"
        return None

    asker_is_ready = False
    with gate(stub_server, busy) as url:
        backend = make_backend(url)
        backend.wait_ready()
        asker_is_ready = True
        replies = backend.answer(BATCH)

    assert len(turned_away) == len(BATCH.questions)
    assert probabilities(replies) == EXPECTED


@pytest.mark.parametrize(
    ("status", "words"), [pytest.param(503, "full", id="busy"), pytest.param(500, "EngineDead", id="dead engine")]
)
def test_a_server_that_falls_silent_or_disappears_is_a_transient_fault(stub_server, make_backend, status, words):
    with gate(
        stub_server, lambda path, _: (status, words) if is_down and path.endswith("completions") else None
    ) as url:
        is_down = False
        backend = make_backend(url)
        info = backend.wait_ready()
        is_down = True
        for use in (lambda: backend.answer(BATCH), backend.wait_ready):
            with pytest.raises(ServerUnavailableError, match=rf"is unavailable \(HTTP {status}\): {words}"):
                use()
        is_down = False
        assert backend.wait_ready() == info

    for use in (lambda: backend.answer(BATCH), backend.wait_ready):
        with pytest.raises(ServerUnavailableError, match="does not respond"):
            use()


def test_a_question_on_which_alone_the_server_fails_is_refused(stub_server, make_backend):
    def fails(_path, body):
        return (500, "EOF in the kernel") if body and "poison" in str(body.get("messages")) else None

    with gate(stub_server, fails) as url:
        refusal, answer = make_backend(url).answer(batch_about(question("Is it poison?"), question()))

    assert refusal.code == "inference_failed"
    assert "failed 2 times on this question, but answers others: EOF in the kernel" in refusal.message
    assert answer.probabilities == pytest.approx(probabilities_of(question(), frame_file(1)))


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        pytest.param({"url": None}, "set server.url", id="no server"),
        pytest.param({"url": "http://[::1/v1"}, r"server\.url http://\[::1/v1 is not an address", id="no address"),
        pytest.param({"url": "http://127.0.0.1:9/v1"}, "does not respond.*Start the server", id="nobody listens"),
        pytest.param({"api_key": None}, "rejects the API key .* set server.api_key", id="no key"),
        pytest.param(
            {"model": "other"}, f"does not serve other; set server.model to one of: {NAME}", id="another model"
        ),
        pytest.param(
            {"encode": lambda text: [1] * len(text)}, "differs from that of model.name", id="another tokenizer"
        ),
    ],
)
def test_an_unusable_server_is_explained_with_the_setting_to_change(stub_server, make_backend, settings, fault):
    with pytest.raises(ConfigurationError, match=fault):
        make_backend(**{"url": stub_server} | settings).wait_ready()


def test_a_server_accepts_frame_files_or_times_or_we_say_how_to_start_it(stub_server, make_backend):
    check_offers(stub_server, make_backend)


def test_a_closed_backend_abandons_its_requests(stub_server, make_backend):
    asked, may_answer = Event(), Event()

    def slow(_path, body):
        if body and "number 3" in json.dumps(body):
            asked.set()
            may_answer.wait(60)
            return 503, "Too late."
        return None

    with gate(stub_server, slow) as url, ThreadPoolExecutor(1) as threads:
        backend = make_backend(url, concurrency=1)
        answering = threads.submit(backend.answer, batch_about(*(question(f"Is it number {n}?") for n in range(100))))
        assert asked.wait(60)
        backend.close()

        with pytest.raises(EngineClosedError):
            answering.result(timeout=5)
        may_answer.set()
