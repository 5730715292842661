"""The page `/live` as the application sends it."""

import base64
import hashlib
import re
from dataclasses import replace

import pytest
from fastapi.testclient import TestClient
from pydantic import SecretStr

from flows.serve.app import make_app
from flows.serve.live.page import OPEN_PATHS, page_router
from flows.serve.requests.handle import open_service
from infra.settings import ServeSettings, Settings
from tests.live.scripted_model import INFO


@pytest.fixture
def page_of():
    """Return a function that gets a path of the page, of a service with or without a token."""

    def get(path="/live", *, token=None, info=INFO):
        settings = Settings(serve=ServeSettings(token=SecretStr(token) if token else None))
        with open_service(settings) as service:
            app = make_app(service, [page_router(info, needs_token=token is not None)], open_paths=OPEN_PATHS)
            return TestClient(app, base_url="http://127.0.0.1").get(path)

    return get


def test_the_page_may_run_its_own_script_and_nothing_else(page_of):
    page = page_of()

    [script] = re.findall(r'<script type="module">(.*?)</script>', page.text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = page.headers["content-security-policy"].split("; ")
    assert {"default-src 'none'", f"script-src 'sha256-{digest}' 'self'", "frame-ancestors 'none'"} <= {*policy}
    assert page.headers["x-content-type-options"] == "nosniff"


def test_the_page_needs_no_token_and_asks_for_it_where_there_is_one(page_of):
    guarded = page_of(token="a-token-of-some-length")

    assert (guarded.status_code, 'id="token"' in guarded.text) == (200, True)
    assert "a-token" not in guarded.text
    assert 'id="token"' not in page_of().text


@pytest.mark.parametrize("name", ["session.js", "microphone.js"])
def test_other_pages_may_import_its_scripts_without_a_token(page_of, name):
    script = page_of(f"/live/{name}", token="a-token-of-some-length")

    assert script.status_code == 200
    assert script.headers["content-type"].startswith("text/javascript")
    assert script.headers["access-control-allow-origin"] == "*"
    assert page_of("/live/live.js").status_code == 404


def test_the_microphone_and_speech_are_offered_where_the_model_has_them(page_of):
    hears, speaks = (page_of(info=replace(INFO, **{name: True})) for name in ("takes_audio", "produces_speech"))

    offered = [['id="microphone"' in page.text, 'id="speech"' in page.text] for page in (page_of(), hears, speaks)]
    assert offered == [[False, False], [True, False], [False, True]]
    allowed = [page.headers["permissions-policy"] for page in (page_of(), hears)]
    assert allowed == ["camera=(self), microphone=()", "camera=(self), microphone=(self)"]
