"""Questions over HTTP, with real frames and a backend that answers by their colour."""

import json
import random
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

import numpy as np
import pytest
from fastapi.testclient import TestClient

from flows.serve.app import make_app
from flows.serve.requests import classify
from flows.serve.requests.classify import Classifier
from flows.serve.requests.handle import open_service
from infra.settings import ExtractSettings, ServerSettings, ServeSettings, Settings, StoreSettings
from reelabel.errors import StoreUnavailableError
from reelabel.frames.frame_file import read_frames
from reelabel.text import escape_controls
from tasks.domain import Answer
from tasks.frame_cache.pool import decode_pool
from tasks.model.backend import backend_of
from tasks.model.prompts.words import read_words
from tasks.model.server.backend import ServerBackend
from tests.clips import write_clip
from tests.stub_server import encoder, serve_stub
from tests.vllm_server import KEY, gate

MUTATIONS = 200
ASKED = {"prompt": "Blue?", "choices": ["yes", "no"]}


class Bright:
    """Answers yes if the frames are blue enough, as the last ones of a clip are."""

    fault = None
    server = None  # what answers instead

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def answer(self, batch):
        if self.fault:
            raise self.fault
        if self.server:
            return self.server.answer(batch)
        return [self._answer(question, batch.frame_files[question.video_id]) for question in batch.questions]

    def _answer(self, question, file):
        sure = float(np.mean(read_frames(file).unique[..., 2])) / 255
        counts = {"prompt_tokens": 1, "cached_tokens": 0, "preprocess_ms": 0.0, "inference_ms": 0.0}
        if not question.choices:
            bound = question.max_tokens
            text = f"{bound} tokens" if question.schema is None else json.dumps({"bound": bound})
            return Answer(words=read_words(question, text, finish_reason="stop", output_tokens=2), **counts)
        return Answer(choice_index=0 if sure > 0.5 else 1, probabilities=(sure, 1 - sure), **counts)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("videos")
    write_clip(folder / "clip.mp4", frames=72, gop=12, fps=12)
    (folder / "text.mp4").write_text("no video")
    (folder / "outside").mkdir()
    write_clip(folder / "outside" / "clip.mp4", frames=12, gop=12, fps=12)
    return folder


@pytest.fixture(scope="module")
def served(folder):
    """A client, and what answers it."""
    (folder / "inside").mkdir()
    for name in ("clip.mp4", "text.mp4"):
        (folder / name).rename(folder / "inside" / name)
    settings = Settings(
        home=folder,
        store=StoreSettings(uri=f"file://{folder}/cache"),
        serve=ServeSettings(max_requests=2),
    )
    with ExitStack() as stack:
        service = stack.enter_context(open_service(settings))
        roots = (folder / "inside", service.uploads.folder.resolve())
        settings = settings.model_copy(update={"extract": ExtractSettings(processes=1, allow_roots=roots)})
        pool, bright = stack.enter_context(decode_pool(settings, processes=1)), Bright()
        classifier = stack.enter_context(Classifier(settings, pool=pool, database=None, engine=bright))
        app = make_app(service, [classify.classify_router(partial(classify.answer, classifier))])
        yield TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False), bright


@pytest.fixture
def client(served):
    return served[0]


@pytest.fixture
def clip(folder):
    return {"video_uri": str(folder / "inside" / "clip.mp4")} | ASKED


def test_the_answer_has_the_columns_of_a_result(client, clip):
    answer = client.post("/v1/classify", json=clip)

    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert found["label"] == clip["choices"][found["choice_index"]]
    assert (found["sampler"], found["chunks"]) == ("keyframes", [])
    assert found["margin"] == pytest.approx(abs(found["probabilities"][0] - found["probabilities"][1]))
    assert {"fetch", "decode", "cache write", "cache read", "preprocess", "inference", "other"} <= {*found["stage_ms"]}


def test_options_choose_the_frames_and_the_segment(client, clip):
    first = client.post("/v1/classify", json=clip | {"sampler": "uniform", "num_frames": 3, "end_s": 1.0}).json()
    last = client.post("/v1/classify", json=clip | {"sampler": "uniform", "num_frames": 3, "start_s": 5.0}).json()

    assert (first["frames_used"], last["frames_used"]) == (3, 3)
    assert (first["label"], last["label"]) == ("no", "yes")  # blue grows with time
    assert first["spec_id"] == last["spec_id"]


def test_chunks_are_answered_one_by_one_and_decide_together(client, clip):
    found = client.post("/v1/classify", json=clip | {"chunk_s": 2, "chunk_rule": "any:yes"}).json()

    assert found["label"] == "yes"
    assert [(chunk["chunk"], chunk["label"]) for chunk in found["chunks"]] == [(0, "no"), (1, "no"), (2, "yes")]
    assert [chunk["start_s"] for chunk in found["chunks"]] == pytest.approx([None, 2, 4], abs=0.01)


def test_a_margin_that_is_fitted_again_counts_from_the_next_request(client, clip, monkeypatch):
    margins = [1e-6, 1.0]
    monkeypatch.setattr(classify, "escalation_margin", lambda *_: margins[0])
    fitted = clip | {"escalate_below": "fitted"}
    assert client.post("/v1/classify", json=fitted).json()["routed_by"] == ""
    del margins[0]
    assert client.post("/v1/classify", json=fitted).json()["routed_by"] == "margin"


def test_without_choices_the_answer_is_in_words_of_a_bounded_number(client, clip):
    body = {"video_uri": clip["video_uri"], "prompt": "What?"}

    response = client.post("/v1/classify", json=body | {"max_tokens": 9})
    by_settings = client.post("/v1/classify", json=body | {"choices": None}).json()

    assert response.status_code == 200, response.text
    found = response.json()
    assert (found["text"], found["data"], found["finish_reason"], found["output_tokens"]) == (
        "9 tokens",
        None,
        "stop",
        2,
    )
    assert {found[name] for name in ("label", "choice_index", "probabilities", "margin", "entropy_nats")} == {None}
    assert by_settings["text"] == "64 tokens"
    assert by_settings["spec_id"] != found["spec_id"]


def test_by_a_schema_the_answer_is_json(client, clip):
    schema = {"type": "object", "properties": {"bound": {"type": "integer"}}}

    found = client.post("/v1/classify", json=clip | {"choices": None, "schema": schema}).json()

    assert (found["text"], found["data"]) == (None, {"bound": 64})
    with_choices = client.post("/v1/classify", json=clip).json()
    assert (with_choices["text"], with_choices["data"], with_choices["finish_reason"]) == (None, None, None)


def test_words_are_refused_where_the_backend_answers_by_choices_alone(client, clip, monkeypatch):
    monkeypatch.setattr(type(backend_of(Settings())), "writes_words", False)

    answer = client.post("/v1/classify", json=clip | {"choices": None})

    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")
    assert "answers by choices alone" in answer.json()["message"]


def test_an_upload_is_answered_as_its_path_and_not_decoded_twice(client, clip, folder):
    video = (folder / "inside" / "clip.mp4").read_bytes()

    first, second = (
        client.post("/v1/classify", data={"request": json.dumps(ASKED)}, files={"video": video}).json()
        for _ in range(2)
    )

    assert first["probabilities"] == second["probabilities"]
    assert first["probabilities"] == client.post("/v1/classify", json=clip).json()["probabilities"]
    assert (first["stage_ms"]["decode"] > 0, second["stage_ms"]["decode"]) == (True, 0)


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        pytest.param({"video_uri": None}, "invalid_request", "video_uri", id="no video"),
        pytest.param({"prompt": None}, "invalid_request", "prompt", id="no prompt"),
        pytest.param({"colour": 1}, "invalid_request", "colour: unknown field", id="unknown field"),
        pytest.param({"choices": ["a"]}, "invalid_request", "fewer than two answers", id="one choice"),
        pytest.param({"choices": ["a", "a"]}, "invalid_request", "duplicates", id="equal choices"),
        pytest.param({"choices": "ab"}, "invalid_request", "choices: must be a list", id="no list"),
        pytest.param({"choices": []}, "invalid_request", "fewer than two answers", id="no choices"),
        pytest.param({"schema": {"type": "string"}}, "invalid_request", "schema is given with choices", id="both"),
        pytest.param({"choices": None, "schema": "{}"}, "invalid_request", "schema: must be", id="schema as text"),
        pytest.param(
            {"choices": None, "schema": {"enum": ["x" * 70_000]}},
            "invalid_request",
            "schema must have",
            id="long schema",
        ),
        pytest.param(
            {"choices": None, "max_tokens": 5000}, "invalid_request", "max_tokens: must be", id="too many tokens"
        ),
        pytest.param(
            {"choices": None, "template": "{prompt} {choices}"},
            "invalid_request",
            "template is given without",
            id="template of words",
        ),
        pytest.param(
            {"choices": None, "chunk_s": 2}, "invalid_request", "or leave out chunk_s", id="words about chunks"
        ),
        pytest.param({"start_s": -1}, "invalid_request", "start_s is negative", id="before the start"),
        pytest.param({"sampler": "unifrom"}, "invalid_request", "uniform", id="misspelled sampler"),
        pytest.param({"sampler": "relevant"}, "invalid_request", "works only in runs", id="sampler of runs"),
        pytest.param({"num_frames": 0}, "invalid_request", "num_frames", id="no frames"),
        pytest.param({"num_frames": True}, "invalid_request", "num_frames: must be a number", id="a truth"),
        pytest.param({"sampler": "uniform", "min_frames": 9}, "invalid_request", "min_frames", id="conflict"),
        pytest.param({"chunk_rule": "mean"}, "invalid_request", "also set chunk_s", id="rule without chunks"),
        pytest.param({"chunk_s": 2, "chunk_rule": "any:x"}, "invalid_request", "none of the choices", id="rule"),
        pytest.param({"escalate_below": "fitted", "chunk_s": 2}, "invalid_request", "fitted", id="fitted for clips"),
        pytest.param({"template": "{prompt}"}, "invalid_request", "{choices}", id="template"),
        pytest.param({"permutations": 99}, "invalid_request", "permutations: must be at most 26", id="permutations"),
        pytest.param({"video_uri": "/etc/passwd"}, "video_refused", "passwd", id="a file of the service"),
        pytest.param({"video_uri": "file:///etc/passwd"}, "video_refused", "passwd", id="the same as a URI"),
        pytest.param({"video_uri": "http://127.0.0.1:1/x"}, "video_refused", "127.0.0.1", id="not a public address"),
        pytest.param({"video_uri": "ftp://x/y.mp4"}, "invalid_request", "scheme", id="scheme"),
        pytest.param({"video_uri": "data:video/mp4;base64,AAAA"}, "video_unreadable", "FFmpeg", id="data"),
    ],
)
def test_a_bad_request_is_refused_with_its_code(client, clip, body, code, message):
    answer = client.post("/v1/classify", json=clip | body)

    assert (answer.status_code, answer.json()["code"]) == (422, code), answer.text
    assert message in answer.json()["message"]
    assert client.get("/health").json()["requests"] == 0


def test_a_link_out_of_the_folders_is_refused(client, folder):
    (folder / "inside" / "link.mp4").symlink_to(folder / "outside" / "clip.mp4")

    answer = client.post("/v1/classify", json=ASKED | {"video_uri": str(folder / "inside" / "link.mp4")})

    assert (answer.status_code, answer.json()["code"]) == (422, "video_refused")


def test_a_failure_of_an_upload_names_no_path(client):
    answer = client.post("/v1/classify", data={"request": json.dumps(ASKED)}, files={"video": b"no video"})

    assert (answer.status_code, answer.json()["code"]) == (422, "video_unreadable")
    assert "reelabel-upload" not in answer.text


def test_a_video_that_was_missing_is_answered_once_it_is_there(client, clip, folder):
    late = folder / "inside" / "late.mp4"
    before = client.post("/v1/classify", json=clip | {"video_uri": str(late)})

    late.write_bytes((folder / "inside" / "clip.mp4").read_bytes())

    assert (before.status_code, before.json()["code"]) == (422, "video_missing")
    assert client.post("/v1/classify", json=clip | {"video_uri": str(late)}).status_code == 200


def test_an_outage_is_worth_another_try_and_leaves_no_place_taken(served, clip):
    client, bright = served
    bright.fault = StoreUnavailableError("The store does not respond.")
    try:
        answer = client.post("/v1/classify", json=clip)
    finally:
        bright.fault = None

    assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
    assert int(answer.headers["retry-after"]) > 0
    assert client.get("/health").json()["requests"] == 0
    assert client.post("/v1/classify", json=clip).status_code == 200


def test_an_odd_reply_of_a_server_behind_is_one_requests_failure(served, clip, monkeypatch):
    client, bright = served
    reply = []

    def odd(path, body):
        is_asked = path.endswith("completions") and "Blue?" in str(body)
        return reply[0] if reply and (is_asked or reply[0][0] == 503) else None

    with serve_stub() as server, gate(server, odd) as url:
        backend = ServerBackend(ServerSettings(url=url, api_key=KEY, max_attempts=1), encode=encoder())
        monkeypatch.setattr(bright, "server", backend)
        for reply[:], expected in (
            ([], (200, None)),
            ([(200, b"<p>Blocked.</p>")], (422, "server_failed")),
            ([(504, "Timed out.")], (422, "server_failed")),
            ([(401, "No.")], (422, "inference_failed")),
            ([(503, "Loading.")], (503, "server_unavailable")),
            ([], (200, None)),
        ):
            answer = client.post("/v1/classify", json=clip)
            assert (answer.status_code, answer.json().get("code")) == expected, answer.text
        backend.close()


_ODD = [None, True, 0, -1, 1e308, "", " ", "\0", "\u202e", "a" * 5000, [], {}, [None], ["a", "b"], "-1"]


def test_mutated_requests_get_a_code_and_occupy_no_slot(client, clip):
    """Fields of odd values, and bytes changed, cut out or doubled; what is refused says why."""
    rng, seen = random.Random(11), Counter()
    names = [*clip, "start_s", "end_s", "chunk_s", "chunk_rule", "sampler", "num_frames", "fps", "task", "template"]
    names += [
        "schema",
        "max_tokens",
        "times_ms",
        "escalate_below",
        "examples",
        "system_prompt",
        "permutations",
        "drop_similar",
        "jpeg_quality",
    ]
    for number in range(MUTATIONS):
        body = clip | {rng.choice(names): rng.choice(_ODD) for _ in range(rng.randint(0, 2))}
        data = bytearray(json.dumps(body).encode())
        for _ in range(number % 3):
            position = rng.randrange(len(data))
            data[position : position + rng.randint(0, 3)] = rng.randbytes(rng.randint(0, 3))

        answer = client.post("/v1/classify", content=bytes(data), headers={"content-type": "application/json"})

        assert answer.status_code in {200, 422}, (bytes(data), answer.text)
        if answer.status_code != 200:
            assert set(answer.json()) == {"code", "message"}
            assert answer.json()["message"] == escape_controls(answer.json()["message"])
        seen[answer.status_code] += 1
    assert min(seen.values()) > MUTATIONS / 20
    assert client.get("/health").json()["requests"] == 0


def test_a_prompt_of_megabytes_is_refused_at_once_and_others_are_answered_meanwhile(client, clip):
    with ThreadPoolExecutor(1) as threads:
        began_s = time.monotonic()
        long = threads.submit(client.post, "/v1/classify", json=clip | {"prompt": "Blue? " * 700_000})
        answer = client.post("/v1/classify", json=clip)
        refused = long.result()
        took_s = time.monotonic() - began_s

    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_request")
    assert refused.json()["message"] == "prompt must have at most 100,000 characters."
    assert answer.status_code == 200
    assert took_s < 20  # 45 s where such a prompt is tokenised


def test_texts_that_are_only_long_together_are_refused_before_the_model_has_them(client, clip):
    answer = client.post("/v1/classify", json=clip | {"prompt": "?" * 60_000, "system_prompt": "!" * 60_000})

    assert (answer.status_code, answer.json()["code"]) == (422, "prompt_too_long")
    assert "characters with its choices, template, examples and system prompt; 100,000 are" in answer.json()["message"]


def test_the_openapi_page_says_how_long_texts_may_be(client):
    body = client.get("/openapi.json").json()["paths"]["/v1/classify"]["post"]["requestBody"]["content"]
    fields = body["application/json"]["schema"]["properties"]

    choices, nothing = fields["choices"]["anyOf"]
    assert (fields["prompt"]["maxLength"], choices["items"]["maxLength"]) == (100_000, 4_000)
    assert (choices["minItems"], nothing) == (2, {"type": "null"})
    assert fields["schema"]["anyOf"][0] == {"type": "object", "additionalProperties": True}
    assert "$ref" not in json.dumps(body)  # there is nothing that it could refer to
    assert body["application/json"]["schema"]["required"] == ["prompt", "video_uri"]
    answer = client.get("/openapi.json").json()["components"]["schemas"]["ClassifyAnswer"]["properties"]
    assert answer["finish_reason"]["anyOf"] == [{"type": "string", "enum": ["stop", "length"]}, {"type": "null"}]
    assert fields["system_prompt"]["anyOf"][0]["maxLength"] == 100_000
    assert fields["video_uri"]["maxLength"] == 16 * 1024**2


@pytest.mark.parametrize("name", ["prompt", "task", "video_uri"])
def test_a_character_that_cannot_be_stored_is_refused_as_in_a_manifest(client, clip, name):
    answer = client.post("/v1/classify", json=clip | {name: "a\0"})

    assert answer.status_code == 422
    assert answer.json()["message"] == f"{name} must not contain the character U+0000."
