"""The application without engines: who may ask, what is refused and how, health and metrics."""

import pickle
import socket
from contextlib import ExitStack
from http import HTTPStatus
from urllib.parse import quote

import httpx
import pytest
from fastapi import APIRouter, WebSocket
from fastapi.testclient import TestClient
from pydantic import SecretStr
from starlette.testclient import WebSocketDenialResponse

from flows.serve.app import make_app
from flows.serve.errors import RequestError
from flows.serve.requests.analyze import analyze_router
from flows.serve.requests.classify import classify_router
from flows.serve.requests.handle import open_service
from flows.serve.server import answering_loading, reserve, url_of
from infra.settings import ServeSettings, Settings
from infra.telemetry import metrics_page
from reelabel.errors import StoreUnavailableError, VideoMissingError

TOKEN = "a-token-of-some-length"
ROUTES = APIRouter()


@ROUTES.get("/fails/{how}")
def fail(how: str) -> None:
    raise {
        "video": VideoMissingError("There is no video at s3://a/b.mp4."),
        "store": StoreUnavailableError("The store does not respond."),
        "bug": ZeroDivisionError("secret of the code"),
    }[how]


@pytest.fixture
def client_of():
    with ExitStack() as stack:

        def make(*routers, **serve):
            service = stack.enter_context(open_service(Settings(serve=ServeSettings(**serve))))
            app = make_app(service, [ROUTES, *routers])
            return TestClient(app, base_url="http://127.0.0.1:8020", raise_server_exceptions=False)

        yield make


def test_health_says_version_and_slots(client_of):
    answer = client_of(max_requests=3).get("/health")

    assert answer.status_code == 200
    assert answer.json() == {"status": "ok", "version": answer.json()["version"], "requests": 0, "slots": 3}


def test_probes_may_ask_for_the_head_alone(client_of):
    answer = client_of().head("/health")
    assert (answer.status_code, answer.content) == (200, b"")


def test_while_models_load_the_port_answers_that_they_do():
    settings = ServeSettings(port=0)
    with reserve(settings) as opened:
        with answering_loading(opened, settings):
            health, models = (httpx.get(f"{url_of(opened)}{path}") for path in ("/health", "/v1/models"))
        assert (health.status_code, health.json()["status"]) == (503, "loading")
        assert (models.status_code, models.json()["code"]) == (503, "loading")
        with socket.create_connection(opened.getsockname()):
            opened.settimeout(10)
            assert opened.accept()[0].fileno() > 0  # it is still open, for what follows


def test_metrics_are_those_of_the_process(client_of):
    answer = client_of().get("/metrics")

    assert answer.headers["content-type"].startswith("text/plain")
    assert "process_cpu_seconds_total" in answer.text
    assert b"process_cpu_seconds_total" in metrics_page()[0]


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/nothing", 404, "not_found"),
        ("/fails/video", 422, "video_missing"),
        ("/fails/store", 503, "store_unavailable"),
        ("/fails/bug", 500, "internal"),
    ],
)
def test_every_error_is_a_code_and_a_sentence(client_of, path, status, code):
    answer = client_of().get(path)

    assert answer.status_code == status
    assert set(answer.json()) == {"code", "message"}
    assert answer.json()["code"] == code
    assert answer.json()["message"].endswith(".")
    assert "secret" not in answer.text


def test_a_refusal_is_the_same_in_another_process():
    refused = RequestError("Too many.", code="busy", status=HTTPStatus.TOO_MANY_REQUESTS, retry_after_s=3)
    unpickled = pickle.loads(pickle.dumps(refused))

    assert (unpickled.message, unpickled.code, unpickled.status, unpickled.retry_after_s) == (
        "Too many.",
        "busy",
        429,
        3,
    )


def test_refusals_say_how_to_ask(client_of):
    client = client_of(token=SecretStr(TOKEN))

    assert client.get("/metrics").headers["www-authenticate"] == "Bearer"
    assert client.delete("/health").headers["allow"] == "GET"


def test_pages_of_the_named_sites_may_ask_with_the_token(client_of):
    client, page = client_of(origins=("https://ours.example",), token=SecretStr(TOKEN)), "https://ours.example"
    asks = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}

    allowed, refused = (client.options("/metrics", headers=asks | {"origin": name}) for name in (page, "https://evil"))

    assert (allowed.status_code, allowed.headers["access-control-allow-origin"]) == (200, page)
    assert (refused.status_code, "access-control-allow-origin" in refused.headers) == (400, False)


@pytest.mark.parametrize("serve", [{"token": SecretStr(TOKEN)}, {"host": "0.0.0.0", "without_token": True}])
def test_a_service_that_others_may_reach_goes_by_any_name(client_of, serve):
    assert client_of(**serve).get("/health", headers={"host": "reelabel.example"}).status_code == 200


def test_an_unavailable_store_is_worth_another_try(client_of):
    assert int(client_of().get("/fails/store").headers["retry-after"]) > 0


def test_the_wrong_method_is_named(client_of):
    answer = client_of().delete("/health")

    assert (answer.status_code, answer.json()["code"]) == (405, "method_not_allowed")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param({}, 401, id="none"),
        pytest.param({"authorization": "Bearer wrong-token-of-some-length"}, 401, id="another"),
        pytest.param({"authorization": f"Basic {TOKEN}"}, 401, id="as a password"),
        pytest.param({"authorization": f"Bearer {TOKEN}"}, 200, id="right"),
    ],
)
def test_a_token_is_asked_for_if_there_is_one(client_of, headers, status):
    client = client_of(token=SecretStr(TOKEN))

    assert client.get("/metrics", headers=headers).status_code == status
    assert client.get("/health").status_code == 200


def test_a_token_of_other_letters_is_taken_as_its_bytes(client_of):
    token = "schlüssel-für-alle"
    client = client_of(token=SecretStr(token))

    assert client.get("/metrics", headers={"authorization": f"Bearer {token}".encode()}).status_code == 200
    with client.websocket_connect(f"/echo?token={quote(token)}") as socket:
        socket.send_text("here")
        assert socket.receive_text() == "here"


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://127.0.0.1:8020", 200),
        ("http://127.0.0.1:1", 403),
        ("https://evil.example", 403),
        ("https://ours.example", 200),
        ("null", 403),
        ("http://[", 403),
        ("http://127.0.0.1:8020.evil.example", 403),
    ],
)
def test_pages_of_other_sites_are_refused(client_of, origin, status):
    client = client_of(origins=("https://ours.example",))

    assert client.get("/metrics", headers={"origin": origin}).status_code == status


@ROUTES.websocket("/echo")
async def echo(socket: WebSocket) -> None:
    await socket.accept()
    await socket.send_text(await socket.receive_text())


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/echo", {}, 401),
        ("/echo?token=wrong-token-of-some-length", {}, 401),
        (f"/echo?token={TOKEN}", {"origin": "https://evil.example"}, 403),
        (f"/echo?token={TOKEN}", {}, None),
        ("/echo", {"authorization": f"Bearer {TOKEN}"}, None),
    ],
)
def test_a_websocket_is_guarded_and_may_have_its_token_in_the_address(client_of, path, headers, status):
    client = client_of(token=SecretStr(TOKEN))

    if status is None:
        with client.websocket_connect(path, headers=headers) as socket:
            socket.send_text("here")
            assert socket.receive_text() == "here"
        return
    with pytest.raises(WebSocketDenialResponse) as raised, client.websocket_connect(path, headers=headers):
        pass
    assert raised.value.status_code == status
    assert set(raised.value.json()) == {"code", "message"}


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:8020", "", "[", "[::1", "127.0.0.1@evil"])
def test_a_name_that_was_pointed_at_loopback_is_refused(client_of, host):
    answer = client_of().get("/health", headers={"host": host})

    assert (answer.status_code, answer.json()["code"]) == (421, "host_refused")


def test_a_generated_client_knows_the_names_fields_and_refusals_and_where_the_token_goes(client_of):
    ask = {"Authorization": f"Bearer {TOKEN}"}
    routers = classify_router(None), analyze_router(None)

    described = client_of(*routers, token=SecretStr(TOKEN)).get("/openapi.json", headers=ask).json()
    without = client_of(*routers).get("/openapi.json").json()

    operations = {path: next(iter(methods.values())) for path, methods in described["paths"].items()}
    assert {path: each["operationId"] for path, each in operations.items() if path[1] != "f"} == {
        "/health": "health",
        "/metrics": "metrics",
        "/v1/classify": "classify",
        "/v1/analyze": "analyze",
    }
    assert [path for path, each in operations.items() if "security" not in each] == ["/health"]
    assert described["components"]["securitySchemes"] == {"token": {"type": "http", "scheme": "bearer"}}
    assert "security" not in str(without)
    assert {400, 401, 403, 408, 413, 415, 421, 422, 429, 500, 503, 504} <= {
        *map(int, operations["/v1/classify"]["responses"])
    }
    bodies = operations["/v1/classify"]["requestBody"]["content"]
    assert "video_uri" in bodies["application/json"]["schema"]["required"]
    assert (
        "video_uri" not in bodies["multipart/form-data"]["schema"]["properties"]["request"]["contentSchema"]["required"]
    )
    for name, schema in described["components"]["schemas"].items():
        if name not in {"HTTPValidationError", "ValidationError"}:  # FastAPI's own
            assert [field for field, facts in schema["properties"].items() if "description" not in facts] == [], name
