"""The body of a request, through an application without engines."""

import json
from io import BytesIO
from pathlib import Path

import pytest
from fastapi import APIRouter, FastAPI, Request
from fastapi.testclient import TestClient
from pydantic import BaseModel, ConfigDict

from flows.serve.errors import add_error_handlers
from flows.serve.requests.body import Uploads, read_body

MOST = 1000


class NamedRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str


@pytest.fixture
def uploads(tmp_path):
    return Uploads(tmp_path, max_bytes=MOST)


@pytest.fixture
def client(uploads):
    app, router = FastAPI(), APIRouter()
    add_error_handlers(app)

    @router.post("/")
    async def answer(request: Request) -> dict[str, str | None]:
        async with read_body(request, NamedRequest, uploads, idle_s=1) as (parsed, path):
            video = Path(path).read_text() if path else None  # noqa: ASYNC240 - a few bytes
            return {"name": parsed.name, "video": video, "path": path}

    app.include_router(router)
    return TestClient(app)


def form(*parts, end=b"--b--\r\n"):
    """A form's body and headers, of parts (name, content); video is a file."""
    body = b"".join(
        b'--b\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n%s\r\n'
        % (name.encode(), b'; filename="v"' if name == "video" else b"", content)
        for name, content in parts
    )
    return {"content": body + end, "headers": {"content-type": "multipart/form-data; boundary=b"}}


def in_charset(name, content):
    """Return a form whose JSON claims to be in some charset."""
    return form(("request", content), ("video", b"x")) | {
        "headers": {"content-type": f"multipart/form-data; boundary=b; charset={name}"}
    }


ASKED = ("request", b'{"name": "a"}')


def test_json_has_no_video(client):
    assert client.post("/", json={"name": "a"}).json() == {"name": "a", "video": None, "path": None}


@pytest.mark.parametrize("order", [1, -1])
def test_a_form_has_a_video_that_is_gone_afterwards(client, uploads, order):
    answer = client.post("/", **form(*[ASKED, ("video", b"bytes")][::order]))

    assert answer.json() | {"path": ""} == {"name": "a", "video": "bytes", "path": ""}
    assert list(uploads.folder.iterdir()) == []


def test_a_form_as_ordinary_clients_send_it(client):
    answer = client.post("/", data={"request": json.dumps({"name": "a"})}, files={"video": b"x" * MOST})

    assert len(answer.json()["video"]) == MOST


def test_a_form_may_name_its_charset(client):
    assert client.post("/", **in_charset("UTF-8", '{"name": "ä"}'.encode())).json()["name"] == "ä"


@pytest.mark.parametrize(
    ("request_", "status", "code", "message"),
    [
        pytest.param({"json": {}}, 422, "invalid_request", "name: is required", id="missing field"),
        pytest.param({"json": {"name": "a", "x": 1}}, 422, "invalid_request", "x: unknown field", id="unknown field"),
        pytest.param({"json": [1]}, 422, "invalid_request", "must be a group of options", id="a list"),
        pytest.param({"content": b"{"}, 422, "invalid_request", "not valid JSON", id="half JSON"),
        pytest.param({"content": b"\xff"}, 422, "invalid_request", "not valid JSON", id="not UTF-8"),
        pytest.param({"json": {str(key): 1 for key in range(101)}}, 422, "invalid_request", "102 faults", id="faults"),
        pytest.param({"content": b"[%s" % (b"1," * 100_001)}, 422, "invalid_request", "100,001 commas", id="commas"),
        pytest.param({"content": b" " * (17 * 1024**2)}, 413, "body_too_large", "upload", id="too much JSON"),
        pytest.param({"data": {"name": "a"}}, 415, "unsupported_media_type", "multipart", id="a form of old"),
        pytest.param(form(ASKED), 400, "invalid_form", "video is missing", id="no video"),
        pytest.param(form(("video", b"x")), 400, "invalid_form", "request is missing", id="no request"),
        pytest.param(form(ASKED, ASKED), 400, "invalid_form", "Too many fields", id="a field twice"),
        pytest.param(form(("vidoe", b"x")), 400, "invalid_form", "'vidoe'", id="unknown part"),
        pytest.param(form(ASKED, ("video", b"x"), end=b""), 400, "invalid_form", "video is missing", id="half a form"),
        pytest.param(form(ASKED, ("video", b"x" * 1001)), 413, "upload_too_large", "max_upload_mib", id="too large"),
        pytest.param(form(("request", b"{}"), ("video", b"x")), 422, "invalid_request", "name", id="JSON of a form"),
        pytest.param(
            {"content": b"x", "headers": {"content-type": "multipart/form-data"}}, 400, "invalid_form", "boundary",
            id="no boundary",
        ),
        pytest.param(
            {"content": b"nonsense", "headers": {"content-type": "multipart/form-data; boundary=b"}}, 400,
            "invalid_form", "cannot be read", id="no form",
        ),
        pytest.param(in_charset("punycode", b"n-"), 400, "invalid_form", "charset is 'punycode'", id="odd codec"),
        pytest.param(in_charset("UTF-7", b"+2AA-"), 400, "invalid_form", "not utf-8", id="half a character"),
    ],
)  # fmt: skip
def test_a_faulty_body_is_refused_with_its_code(client, uploads, request_, status, code, message):
    answer = client.post("/", **request_)

    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert message in answer.json()["message"]
    assert list(uploads.folder.iterdir()) == []


def test_a_long_name_of_a_client_is_not_repeated_in_full(client):
    answer = client.post("/", json={"name": "a", "\1" + "x" * 2_000_000: 1})

    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")
    assert "unknown field" in answer.json()["message"]
    assert len(answer.text) < 300


def test_an_upload_that_cannot_be_copied_leaves_nothing(uploads):
    class Lost(BytesIO):
        def read(self, size=-1):
            raise OSError(f"none of {size} bytes")

    with pytest.raises(OSError, match="none of"), uploads.keep(Lost()):
        pass

    assert list(uploads.folder.iterdir()) == []


def test_the_same_bytes_are_one_file_of_one_version_until_the_last_user_has_gone(uploads):
    def send(data):
        with uploads.keep(BytesIO(data)) as path:
            yield path

    first, second, third = send(b"same"), send(b"same"), send(b"else")
    path, again, other = (Path(next(each)) for each in (first, second, third))

    assert path == again != other
    assert path.stat().st_mtime_ns == other.stat().st_mtime_ns
    first.close()
    assert path.exists()
    second.close()
    assert not path.exists()
