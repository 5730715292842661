"""A server that answers with another model than the one that was named, or than at the start."""

import json
from itertools import count, cycle

import pytest

from infra.errors import ServerUnavailableError
from reelabel.errors import ConfigurationError
from reelabel_engine.protocol import Rejected
from tasks.model.identity import TINY_MODEL
from tasks.model.server import model_watch
from tasks.model.server.model_watch import PROBES
from tests.model.server.questions import BATCH
from tests.stub_server import serve_stub
from tests.vllm_server import DROPPED, gate


def json_bytes(value):
    return json.dumps(value).encode()


def test_the_same_model_is_confirmed_by_one_question_per_probe(make_backend):
    requests = []
    with serve_stub() as server, gate(server, lambda path, body: requests.append((path, body)) and None) as url:
        backend = make_backend(url)
        backend.answer(BATCH)
        requests.clear()
        backend.confirm_model()

    assert sorted(path for path, _ in requests) == ["/v1/chat/completions"] * len(PROBES) + ["/v1/models"]


@pytest.mark.parametrize("exact", [True, False], ids=["logprobs of any token", "top logprobs only"])
def test_a_model_that_is_replaced_in_the_middle_is_noticed_before_its_answers_count(make_backend, exact):
    weights = []

    def strict(_path, body):
        return (400, "Unknown parameter.") if not exact and body and "logprob_token_ids" in body else None

    with serve_stub(weights=lambda: b"".join(weights)) as server, gate(server, strict) as url:
        backend = make_backend(url)
        backend.answer(BATCH)
        backend.confirm_model()
        weights.append(b"another")
        backend.answer(BATCH)
        with pytest.raises(ConfigurationError, match=r"another model than at the start \(answers .* nats") as raised:
            backend.confirm_model()

    assert raised.value.message.startswith(f"The server at {url} answers with another model")
    assert raised.value.message.count(". ") == 0


def test_an_answer_by_a_model_that_only_now_and_then_takes_over_fails_its_question_alone(make_backend):
    """As a router sends some questions elsewhere while its model is busy; a check at another time notices nothing."""

    def other(_path, body):
        if body and "Look closely." in str(body):
            top = [{"token": f"token_id:{token}", "logprob": -1.0} for token in body["logprob_token_ids"]]
            choice = {"logprobs": {"content": [{"top_logprobs": top}]}}
            return 200, json_bytes({"model": "a smaller one", "choices": [choice]})
        return None

    with serve_stub() as server, gate(server, other) as url:
        backend = make_backend(url)
        replies = backend.answer(BATCH)
        backend.confirm_model()

    [failed] = [reply for reply in replies if isinstance(reply, Rejected)]
    assert failed is replies[1]
    assert failed.code == "server_failed"
    assert "with the model 'a smaller one', in place of 'shapes'; set server.url" in failed.message


def test_two_models_behind_one_address_are_refused_at_the_start(make_backend):
    turns = cycle((b"", b"another"))
    with (
        serve_stub(weights=lambda: next(turns)) as url,
        pytest.raises(ConfigurationError, match="as if several models"),
    ):
        make_backend(url).wait_ready()


def test_a_lost_connection_and_some_minutes_lead_to_a_check(make_backend, monkeypatch):
    weights, drops = [], count()

    def drop(_path, body):
        return (DROPPED, b"") if weights and body and "shape" in str(body) and not next(drops) else None

    with serve_stub(weights=lambda: b"".join(weights)) as server, gate(server, drop) as url:
        backend, patient = make_backend(url), make_backend(server)
        for each in (backend, patient):
            each.wait_ready()
        weights.append(b"another")
        with pytest.raises(ConfigurationError, match="another model than at the start"):
            backend.answer(BATCH)
        patient.answer(BATCH)  # too early for a check
        monkeypatch.setattr(model_watch, "CHECK_EVERY_S", 0)
        with pytest.raises(ConfigurationError, match="another model than at the start"):
            patient.answer(BATCH)


def test_another_model_is_refused_for_every_batch_after_a_lost_connection(make_backend):
    weights, drops = [], count()

    def drop(_path, body):
        return (DROPPED, b"") if weights and body and "shape" in str(body) and not next(drops) else None

    with serve_stub(weights=lambda: b"".join(weights)) as server, gate(server, drop) as url:
        backend = make_backend(url)
        backend.wait_ready()
        weights.append(b"another")
        for _ in range(3):
            with pytest.raises(ConfigurationError, match="another model than at the start"):
                backend.answer(BATCH)
        weights.clear()
        assert not any(isinstance(reply, Rejected) for reply in backend.answer(BATCH))


def test_a_server_that_was_away_during_a_batch_is_checked_before_the_next(make_backend):
    weights, away = [], []
    with (
        serve_stub(weights=lambda: b"".join(weights)) as server,
        gate(server, lambda *_: (DROPPED, b"") if away else None) as url,
    ):
        backend = make_backend(url)
        backend.wait_ready()
        away.append(True)
        with pytest.raises(ServerUnavailableError):
            backend.answer(BATCH)
        away.clear()
        weights.append(b"another")
        with pytest.raises(ConfigurationError, match="another model than at the start"):
            backend.answer(BATCH)


@pytest.mark.parametrize(
    ("field", "value"),
    [("root", "another/model"), ("max_model_len", 4096), ("created", 2)],
    ids=str,
)
def test_what_a_server_says_of_its_model_must_not_change(make_backend, field, value):
    now = {"id": "shapes", "root": None, "max_model_len": 2048, "created": 1}

    def answer(path, _body):
        if path == "/version":
            return 404, "Not found."
        return (200, json_bytes({"data": [now]})) if path.endswith("/models") else None

    with serve_stub() as server, gate(server, answer) as url:
        backend = make_backend(url)
        backend.wait_ready()
        was = now[field]
        now[field] = value
        with pytest.raises(ConfigurationError, match=rf"\({field} was {was} and is {value}\)"):
            backend.confirm_model()


def test_the_time_at_which_vllm_was_asked_is_no_fact_about_its_model(make_backend):
    times = count(1_800_000_000)

    def answer(path, _body):
        now = {"id": "shapes", "root": None, "max_model_len": 2048, "created": next(times)}
        return (200, json_bytes({"data": [now]})) if path.endswith("/models") else None

    with serve_stub() as server, gate(server, answer) as url:
        backend = make_backend(url)
        backend.wait_ready()
        backend.confirm_model()


def test_a_server_that_is_away_at_a_check_is_no_other_model(make_backend):
    away = []
    with serve_stub() as server, gate(server, lambda *_: (503, "Loading.") if away else None) as url:
        backend = make_backend(url)
        backend.wait_ready()
        away.append(True)
        with pytest.raises(ServerUnavailableError, match="Loading"):
            backend.confirm_model()
        away.clear()
        backend.confirm_model()


@pytest.mark.parametrize(
    ("root", "named", "fault"),
    [
        pytest.param("Qwen/Qwen2.5-VL-7B-Instruct", "Qwen/Qwen2.5-VL-3B-Instruct", "has loaded Qwen/Qwen2.5", id="hub"),
        pytest.param("Qwen/Qwen2.5-VL-3B-Instruct", "qwen/Qwen2.5-VL-3B-Instruct", None, id="the same on the hub"),
        pytest.param("/models/qwen", "Qwen/Qwen2.5-VL-3B-Instruct", None, id="a folder elsewhere"),
        pytest.param("/" + "x" * 5000, str(TINY_MODEL), None, id="a folder that may not be looked up here"),
        pytest.param("/proc/self", str(TINY_MODEL), None, id="a folder that has no model here"),
        pytest.param(None, "Qwen/Qwen2.5-VL-3B-Instruct", None, id="unknown"),
        pytest.param(str(TINY_MODEL), str(TINY_MODEL / ".." / TINY_MODEL.name), None, id="the same folder"),
    ],
)
def test_a_server_that_has_loaded_another_model_than_the_one_named_is_refused(make_backend, root, named, fault):
    with serve_stub(root) as url:
        backend = make_backend(url, named=named)
        if fault:
            with pytest.raises(ConfigurationError, match=fault):
                backend.wait_ready()
        else:
            backend.wait_ready()


def test_another_folder_is_the_same_model_only_with_the_same_content(make_backend, tmp_path):
    same, other = tmp_path / "same", tmp_path / "other"
    for folder in (same, other):
        folder.mkdir()
        for file in TINY_MODEL.iterdir():
            (folder / file.name).write_bytes(file.read_bytes())
    weights = other / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\1")

    with serve_stub(str(same)) as url:
        make_backend(url, named=str(TINY_MODEL)).wait_ready()
    with serve_stub(str(other)) as url, pytest.raises(ConfigurationError, match=r"has loaded .*other, not"):
        make_backend(url, named=str(TINY_MODEL)).wait_ready()
