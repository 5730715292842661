"""Responses with anything anywhere: each is an answer, or the failure of its own question."""

import contextlib
import copy
import json
import os
import random

from infra.settings import ServerSettings
from reelabel.errors import ReelabelError
from reelabel.text import escape_controls
from reelabel_engine.prompts import choice_tokens
from reelabel_engine.protocol import Batch
from tasks.domain import Answer
from tasks.model.server.answers import Completion
from tasks.model.server.client import ServerClient
from tests.model.factories import frame_file, question
from tests.stub_server import encoder
from tests.vllm_server import KEY, NAME, gate

QUESTIONS = 40
DEEP = json.loads("[" * 400 + "]" * 400)
VALUES = [
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        0.5,
        2**31,
        2**63,
        10**400,
        -1e308,
        1e-320,
        float("nan"),
        float("inf"),
        -float("inf"),
    ),
    *("", "A", "0", "\0", "\ud800", "\u202e", "<b>", "token_id:1", f"token_id:{'9' * 5000}", "x" * 100_000),
    *([], [None], [[]], {}, {"message": None}, {"message": {"code": [1]}, "code": "\ud800"}, {"": {}}, DEEP),
]
CHOICES = ("yes", "no")
TOP = [
    {"token": f"token_id:{token}", "logprob": -0.25}
    for token in set().union(*choice_tokens(CHOICES, scoring="letter", encode=encoder()))
]
COMPLETION = {
    "id": "1",
    "choices": [
        {
            "message": {"content": "A"},
            "logprobs": {"content": [{"top_logprobs": TOP}]},
        }
    ],
    "usage": {"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 3}},
}
ERROR = {"error": {"message": "No.", "type": "odd", "param": None, "code": 400}}
MODELS = {"data": [{"id": NAME, "root": "/no/such/model", "max_model_len": 2048}]}


def paths_in(value, path=()):
    """Yield the path of every value in a JSON value."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in items:
        yield from paths_in(each, (*path, key))


def changed(rng, value):
    """Change one or three values in a JSON value, and now and then its text."""
    whole = [copy.deepcopy(value)]
    for _ in range(rng.choice([1, 1, 1, 3])):
        *parents, last = rng.choice([*paths_in(whole)][1:])
        inner = whole
        for key in parents:
            inner = inner[key]
        if rng.random() < 0.2 and parents:
            del inner[last]
        else:
            inner[last] = copy.deepcopy(rng.choice(VALUES))
        if not whole or whole[0] == []:
            break
    text = json.dumps(whole[0] if whole else None).encode()
    match rng.random():
        case cut if cut < 0.05:
            return text[: rng.randrange(len(text))]
        case noise if noise < 0.1:
            at = rng.randrange(len(text))
            return text[:at] + rng.randbytes(3) + text[at + 1 :]
        case _:
            return text


def test_anything_in_a_response_is_an_answer_or_the_failure_of_its_question(stub_server, make_backend):
    rng = random.Random(os.environ.get("SEED", "1"))
    questions = tuple(question(f"Number {number}?", CHOICES) for number in range(QUESTIONS))
    replies = {
        one.text: (200, changed(rng, COMPLETION))
        if number % 3
        else (rng.choice([200, 400, 401, 403, 404, 418, 422, 451]), changed(rng, ERROR))
        for number, one in enumerate(questions)
    }

    def answer(path, body):
        return replies.get(body["messages"][-1]["content"][-1]["text"]) if path.endswith("completions") else None

    with gate(stub_server, answer) as url:
        got = make_backend(url).answer(Batch(frame_files={"v": frame_file(1)}, questions=questions))

    answers = [one for one in got if isinstance(one, Answer)]
    assert QUESTIONS / 20 < len(answers) < QUESTIONS * 0.9
    for one in answers:
        assert 0 <= one.cached_tokens < 2**24
        assert 0 <= one.prompt_tokens < 2**24
    for one in got:
        if not isinstance(one, Answer):
            assert one.code in {"server_failed", "inference_failed", "prompt_too_long"}
            assert one.message == escape_controls(one.message)
            assert len(one.message.encode()) < 4000


def test_anything_in_what_is_asked_before_the_first_question_is_reported_in_a_sentence():
    rng, content = random.Random(3), [b""]
    with gate("http://127.0.0.1:9/v1", lambda *_: (rng.choice([200, 200, 400, 500]), content[0])) as url:
        settings = ServerSettings(url=url, api_key=KEY, max_attempts=1)
        with contextlib.closing(ServerClient(settings)) as client:
            for _ in range(100):
                content[0] = changed(rng, rng.choice([MODELS, {"tokens": [1, 2]}, {"version": "1"}, COMPLETION, ERROR]))
                for ask in (client.find_model, client.find_version, lambda: client.tokenize("A"), client.reach):
                    with contextlib.suppress(ReelabelError):
                        ask()


def test_what_is_unknown_about_tokens_is_no_fault():
    for usage in (None, 7, {}, {"prompt_tokens": None}, {"prompt_tokens": "many"}, {"prompt_tokens": -1}):
        completion = Completion.model_validate({"choices": [], "usage": usage})
        assert (completion.usage and completion.usage.prompt_tokens) is None
    known = Completion.model_validate_json(json.dumps(COMPLETION | {"usage": {"prompt_tokens": 9, "more": None}}))
    assert (known.usage.prompt_tokens, known.usage.cached_tokens) == (9, None)
