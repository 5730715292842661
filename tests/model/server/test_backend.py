"""How a server is asked, and how its faults are handled; `test_vllm` asks a real one."""

import gzip
import json
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from threading import Event

import pytest

from infra.errors import EngineClosedError, ServerUnavailableError
from infra.settings import ServerSettings, Settings
from reelabel.errors import ConfigurationError
from reelabel.text import pluralize
from reelabel_engine.errors import ModelError
from reelabel_engine.prompts import choice_tokens
from reelabel_engine.protocol import Batch
from tasks.domain import Answer
from tasks.model.identity import TINY_MODEL, read_model_info
from tasks.model.server.answers import read_logprobs
from tasks.model.server.openai_backend import OPENAI, read_served_model_info
from tests.certificates import Authority
from tests.model.factories import batch_about, frame_file, question
from tests.model.server.questions import BATCH, check_offers
from tests.stub_server import MAX_TOKENS, encoder, probabilities_of, serve_stub
from tests.vllm_server import CUT, DROPPED, KEY, NAME, gate, without_token_ids
from tests.wait import until


def probabilities(replies):
    return [reply.probabilities for reply in replies]


EXPECTED = [pytest.approx(probabilities_of(one, BATCH.frame_files[one.video_id])) for one in BATCH.questions]


def test_every_answer_reaches_its_question_with_many_threads(stub_server, make_backend):
    backend = make_backend(stub_server)

    assert backend.wait_ready().max_model_len == MAX_TOKENS
    with ThreadPoolExecutor(4) as threads:
        answered = list(threads.map(backend.answer, [BATCH] * 8))

    assert [probabilities(replies) for replies in answered] == [EXPECTED] * 8


def test_tokens_are_those_that_the_server_counts_or_none(stub_server, make_backend):
    [counted] = make_backend(stub_server).answer(batch_about(question()))
    tokens = set().union(*choice_tokens(ODD.choices, scoring="letter", encode=encoder()))
    top = [{"token": f"token_id:{token}", "logprob": -3.0} for token in tokens]
    uncounted = json.dumps({"choices": [{"logprobs": {"content": [{"top_logprobs": top}]}}]}).encode()

    with odd_replies(stub_server, {ODD.text: lambda: (200, uncounted)}) as (url, _):
        [answer] = make_backend(url).answer(batch_about(ODD))

    assert (counted.prompt_tokens, counted.cached_tokens) == (len(encoder()(question().text)), 0)
    assert (answer.prompt_tokens, answer.cached_tokens) == (0, 0)
    assert counted.inference_ms > 0


def test_without_a_local_model_the_server_provides_name_and_tokens(stub_server, make_backend):
    model_info = read_served_model_info(ServerSettings(url=stub_server, api_key=KEY))

    replies = make_backend(stub_server, is_tokenizer_known=False).answer(BATCH)

    assert (model_info.identity.name, model_info.identity.served_at) == (NAME, stub_server)
    assert probabilities(replies) == EXPECTED


def test_arguments_of_the_chat_template_are_sent_with_every_question(stub_server, make_backend):
    sent = []
    arguments = {"enable_thinking": False}

    with gate(stub_server, lambda path, body: sent.append((path, body)) and None) as url:
        backend = make_backend(url, template_args=arguments)
        backend.wait_ready()
        backend.wait_ready()
        backend.answer(BATCH)
        make_backend(url).wait_ready()

    *theirs, _ = [body.get("chat_template_kwargs") for path, body in sent if path.endswith("completions")]
    assert theirs[: len(BATCH.questions)] == [arguments] * len(BATCH.questions)
    assert theirs[-1] is None


def test_a_server_whose_template_begins_a_thought_is_refused_unless_an_argument_turns_that_off(make_backend):
    def ending(arguments):
        return "</s>\n" if arguments.get("enable_thinking") is False else "<think>\n"

    with serve_stub(ending=ending) as url:
        with pytest.raises(ModelError, match=r"ends the prompt with <think>, .* enable_thinking = false"):
            make_backend(url).wait_ready()
        make_backend(url, template_args={"enable_thinking": False}).wait_ready()


def test_frames_have_the_size_of_the_model_that_the_server_loaded(stub_server):
    model_info = read_served_model_info(ServerSettings(url=stub_server, api_key=KEY))

    expected = replace(read_model_info(str(TINY_MODEL)), identity=model_info.identity, location=NAME, revision=None)
    assert model_info == expected
    assert model_info.max_pixels or model_info.max_video_pixels


@pytest.mark.parametrize("root", [None, "/no/such/model", "a/folder/elsewhere"])
def test_a_missing_local_model_is_warned_of(root, caplog):
    with serve_stub(root) as url:
        model_info = read_served_model_info(ServerSettings(url=url, api_key=KEY))

    assert "set model.name" in caplog.text
    assert (model_info.identity.served_at, model_info.location) == (url, NAME)
    assert (model_info.size_multiple_px, model_info.max_pixels, model_info.native_sampler) == (28, None, "uniform")


def test_a_model_that_is_not_named_is_that_of_the_server(stub_server):
    settings = Settings(model={"backend": "openai", "name": None}, server={"url": stub_server, "api_key": KEY})

    assert OPENAI.model_info(None, settings) == read_served_model_info(settings.server)


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
    with gate(stub_server, without_token_ids) as url:
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
    ("status", "error"), [pytest.param(503, "full", id="busy"), pytest.param(500, "EngineDead", id="dead engine")]
)
def test_a_server_that_falls_silent_or_disappears_is_a_transient_fault(stub_server, make_backend, status, error):
    with gate(
        stub_server, lambda path, _: (status, error) if is_down and path.endswith("completions") else None
    ) as url:
        is_down = False
        backend = make_backend(url)
        info = backend.wait_ready()
        is_down = True
        for use in (lambda: backend.answer(BATCH), backend.wait_ready):
            with pytest.raises(ServerUnavailableError, match=rf"is unavailable \(HTTP {status}: {error}\)") as raised:
                use()
            assert not raised.value.replies
        is_down = False
        assert backend.wait_ready() == info

    for use in (lambda: backend.answer(BATCH), backend.wait_ready):
        with pytest.raises(ServerUnavailableError, match="does not respond"):
            use()


FIVE_GOOD = [question(f"Is it number {number}?", video_id="vw"[number % 2]) for number in range(5)]
ODD = question("Is it odd?")
SIX = Batch(
    frame_files={"v": frame_file(1), "w": frame_file(2)}, questions=(FIVE_GOOD[0], FIVE_GOOD[1], ODD, *FIVE_GOOD[2:])
)
EXPECTED_OF_FIVE = [pytest.approx(probabilities_of(one, SIX.frame_files[one.video_id])) for one in FIVE_GOOD]
PAGE = b"<html><head><title>504 Gateway Time-out</title></head>\n<body><hr>nginx</body></html>"
FIREWALL = b"<!doctype html>\n<html><title>Forbidden</title><p>Your request was blocked.</p></html>"
# What a server, or what is before it, may reply to one question; and the failure's words.
NO_REPLY = [
    *(((status, PAGE), f"HTTP {status}: 504 Gateway Time-out nginx") for status in (500, 502, 503, 504, 429)),
    ((504, "Timed out."), "HTTP 504: Timed out"),
    ((DROPPED, b""), "Server disconnected without sending a response"),
    ((200, CUT), "peer closed connection without sending complete message body"),
]
NO_ANSWER = [
    (
        (200, "Content policy."),
        "server_failed",
        "returned no answer to this question, but answers others: .*Content pol",
    ),
    ((200, FIREWALL), "server_failed", "answers others: Forbidden Your request was blocked"),
    ((200, b""), "server_failed", "answers others: an empty response"),
    ((200, b"OK"), "server_failed", "answers others: OK"),
    ((200, b" " * (16 * 1024**2 + 1)), "server_failed", "sent a response of more than 16 MiB, which is no answer"),
    ((500, b" " * (16 * 1024**2 + 1)), "server_failed", "sent a response of more than 16 MiB, which is no answer"),
    ((200, b'{"choices": [{"logp'), "server_failed", "answers others: "),
    ((200, b'{"choices": null}'), "server_failed", "answers others: "),
    ((200, b'{"choices": []}'), "inference_failed", "no logprobs"),
    ((403, FIREWALL), "inference_failed", r"rejects the question \(HTTP 403\): Forbidden Your request was blocked"),
    ((401, "No."), "inference_failed", r"rejects the question \(HTTP 401\): No"),
    ((404, "No such image."), "inference_failed", r"rejects the question \(HTTP 404\): No such image"),
    ((422, b'{"error": "Odd."}'), "inference_failed", r"rejects the question \(HTTP 422\): Odd"),
]


@contextmanager
def odd_replies(url, replies, *, headers=None):
    """A gate that makes replies itself, by the text of the question; gives its URL, and how often each was asked.

    `headers` are added to these replies.
    """
    request_counts = Counter()

    def answer(path, body):
        if not (body and path.endswith("completions")):
            return None
        text = body["messages"][-1]["content"][-1]["text"]
        request_counts[text] += 1
        return replies[text]() if text in replies else None

    with gate(url, answer, headers=headers) as gated:
        yield gated, request_counts


def test_a_question_without_an_answer_fails_in_the_words_of_the_server_and_the_others_are_asked_once(
    stub_server, make_backend
):
    odd = [question(f"Is it odd, {number}?", video_id=f"{number}") for number in range(len(NO_REPLY + NO_ANSWER))]
    replies = [reply for reply, *_ in NO_REPLY + NO_ANSWER]
    batch = Batch(
        frame_files=SIX.frame_files | {one.video_id: frame_file(1) for one in odd}, questions=(*odd, *FIVE_GOOD)
    )
    reply_of = {one.text: partial(lambda reply: reply, reply) for one, reply in zip(odd, replies, strict=True)}

    with odd_replies(stub_server, reply_of) as (url, request_counts):
        got = make_backend(url).answer(batch)

    assert probabilities(got[len(odd) :]) == EXPECTED_OF_FIVE
    assert {request_counts[one.text] for one in FIVE_GOOD} == {1}
    failed, refused = got[: len(NO_REPLY)], got[len(NO_REPLY) : len(odd)]
    for one, failure, (_, cause) in zip(odd, failed, NO_REPLY, strict=False):
        assert (failure.code, failure.stage, request_counts[one.text]) == ("server_failed", "inference", 2)
        message = f"The server at {url} failed in 2 attempts to answer this question, but answers others: {cause}"
        assert failure.message.startswith(message)
    assert {request_counts[one.text] for one in odd[len(NO_REPLY) :]} == {1}
    for failure, (_, code, message) in zip(refused, NO_ANSWER, strict=True):
        assert (failure.code, bool(re.search(message, failure.message))) == (code, True), failure.message


@pytest.mark.parametrize("attempts", [1, pytest.param(3, marks=pytest.mark.system)])
def test_a_question_that_is_never_answered_in_time_is_asked_so_often_and_the_others_once(
    stub_server, make_backend, attempts
):
    ends = Event()
    with odd_replies(stub_server, {ODD.text: lambda: (503, ends.wait(60) and "Too late.")}) as (url, request_counts):
        first, second, odd, *rest = make_backend(url, timeout_s=8, max_attempts=attempts).answer(SIX)
        ends.set()

    assert probabilities((first, second, *rest)) == EXPECTED_OF_FIVE
    assert {request_counts[one.text] for one in FIVE_GOOD} == {1}
    assert (odd.code, request_counts[ODD.text]) == ("server_failed", attempts)
    assert "timed out; server.timeout_s is 8" in odd.message
    assert f"in {pluralize(attempts, 'attempt')} to answer" in odd.message


@pytest.mark.parametrize(
    ("reply", "error", "message"),
    [
        ((200, FIREWALL), ServerUnavailableError, r"no longer answers \(Forbidden Your request was blocked\)"),
        ((401, "Expired."), ConfigurationError, "rejects the API key"),
        ((404, "No such model."), ConfigurationError, "No such model; check server.url"),
    ],
)
def test_a_reply_that_is_the_same_for_every_question_is_about_none(stub_server, make_backend, reply, error, message):
    with gate(stub_server, lambda path, _: reply if is_odd and path.endswith("completions") else None) as url:
        is_odd = False
        backend = make_backend(url)
        backend.wait_ready()
        is_odd = True
        for use in (lambda: backend.answer(SIX), backend.wait_ready):
            with pytest.raises(error, match=message):
                use()


def test_a_small_response_that_decompresses_to_a_large_one_fails_its_question_alone(stub_server, make_backend):
    bomb = gzip.compress(b" " * (64 * 1024**2))
    with odd_replies(stub_server, {ODD.text: lambda: (200, bomb)}, headers={"Content-Encoding": "gzip"}) as (url, _):
        first, second, odd, *rest = make_backend(url).answer(SIX)

    assert probabilities((first, second, *rest)) == EXPECTED_OF_FIVE
    assert (odd.code, "16 MiB" in odd.message) == ("server_failed", True)


def test_an_unexpected_error_about_one_question_fails_it_alone(stub_server, make_backend, monkeypatch):
    def read(completion, encode):
        if next(counted) == 3:
            raise KeyError("What is this?")
        return read_logprobs(completion, encode)

    backend, counted = make_backend(stub_server, concurrency=1), count(1)
    backend.wait_ready()
    monkeypatch.setattr("tasks.model.server.backend.read_logprobs", read)

    codes = [getattr(one, "code", None) for one in backend.answer(SIX)]

    assert sorted(codes, key=bool) == [None] * 5 + ["internal"]


def test_what_was_received_before_an_outage_comes_with_its_error(stub_server, make_backend):
    is_down = Event()

    def answer(path, body):
        if body and path.endswith("completions") and "Is it odd?" in json.dumps(body):
            is_down.set()
        return (503, "Loading.") if is_down.is_set() else None

    with gate(stub_server, answer) as url, pytest.raises(ServerUnavailableError, match="Loading") as raised:
        make_backend(url, concurrency=1).answer(SIX)

    assert [*raised.value.replies] == [0]
    assert probabilities(raised.value.replies.values()) == EXPECTED_OF_FIVE[:1]


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


def test_an_address_without_v1_is_distinguished_from_a_server_without_an_api(stub_server, make_backend):
    def answers(path, _body):
        return None if path.startswith("/v1/") else (404, "Not Found")

    with gate(stub_server, answers) as url, pytest.raises(ConfigurationError) as raised:
        make_backend(url.removesuffix("/v1")).wait_ready()

    assert raised.value.message.endswith(f"does not end in /v1; set it (REELABEL_SERVER_URL) to {url}.")


def test_a_server_with_a_certificate_of_its_own_needs_a_file(make_backend, tmp_path):
    authority = Authority(tmp_path)
    with serve_stub(tls=authority.sign("server", "127.0.0.1")) as url:
        with pytest.raises(ConfigurationError, match=r"its certificate is your own, set server\.ca_file"):
            make_backend(url).wait_ready()
        with pytest.raises(ConfigurationError, match=r"server\.ca_file .*gone\.crt cannot be used"):
            make_backend(url, ca_file=tmp_path / "gone.crt").wait_ready()
        assert probabilities(make_backend(url, ca_file=authority.certificate).answer(BATCH)) == EXPECTED


def test_a_server_accepts_frame_files_or_times_or_we_say_how_to_start_it(stub_server, make_backend):
    check_offers(stub_server, make_backend)


def test_a_closed_backend_abandons_its_requests(stub_server, make_backend):
    received, may_answer = Event(), Event()

    def slow(_path, body):
        if body and "number 3" in json.dumps(body):
            received.set()
            may_answer.wait(60)
            return 503, "Too late."
        return None

    with gate(stub_server, slow) as url, ThreadPoolExecutor(1) as threads:
        backend = make_backend(url, concurrency=1)
        answering = threads.submit(backend.answer, batch_about(*(question(f"Is it number {n}?") for n in range(100))))
        assert received.wait(60)
        backend.close()

        with pytest.raises(EngineClosedError):
            answering.result(timeout=5)
        may_answer.set()
        with pytest.raises(EngineClosedError):
            backend.answer(BATCH)


def test_a_batch_that_waits_for_another_ends_with_its_backend(stub_server, make_backend):
    backend = make_backend(stub_server)
    backend.wait_ready()
    with ThreadPoolExecutor(1) as threads:
        with backend._server_lock.exclusive():
            waiting = threads.submit(backend.answer, BATCH)
            until(lambda: backend._server_lock._changed._waiters)
            backend.close()

        with pytest.raises(EngineClosedError, match="the run is ending"):
            waiting.result(60)
