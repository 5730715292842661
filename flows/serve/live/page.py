"""The page `/live`: a camera, and a microphone if the model accepts audio. It loads nothing from other sites."""

from __future__ import annotations

import base64
import hashlib
from functools import partial
from importlib.metadata import version
from importlib.resources import files
from typing import TYPE_CHECKING

from fastapi import APIRouter, Response
from fastapi.responses import HTMLResponse
from markupsafe import Markup

from tasks.report.render import environment, read

if TYPE_CHECKING:
    from tasks.live.model import LiveInfo

PATH = "/live"
# In files of their own: browsers load AudioWorklets only from files, and other pages import the session.
_SCRIPTS = ("microphone.js", "session.js")
_NO_SNIFFING = {"X-Content-Type-Options": "nosniff"}
# They contain no secret; the page asks for the token if there is one.
OPEN_PATHS = frozenset({PATH, *(f"{PATH}/{name}" for name in _SCRIPTS)})


def page_router(info: LiveInfo, *, needs_token: bool) -> APIRouter:
    router = APIRouter(include_in_schema=False)
    script = _read("live.js")
    page = (
        environment()
        .from_string(_read("live.html.jinja"))
        .render(
            style=Markup(read("style.css") + "\n" + _read("live.css")),  # noqa: S704 - our own files
            script=Markup(script),  # noqa: S704
            needs_token=needs_token,
            takes_audio=info.takes_audio,
            produces_speech=info.produces_speech,
            version=version("reelabel"),
        )
    )
    headers = _headers(script, takes_audio=info.takes_audio)

    @router.get(PATH)
    async def live_page() -> HTMLResponse:
        return HTMLResponse(page, headers=headers)

    for name in _SCRIPTS:
        router.add_api_route(f"{PATH}/{name}", partial(_script_file, name), response_model=None)
    return router


async def _script_file(name: str) -> Response:
    headers = {**_NO_SNIFFING, "Access-Control-Allow-Origin": "*"}
    return Response(_read(name), media_type="text/javascript", headers=headers)


def _headers(script: str, *, takes_audio: bool) -> dict[str, str]:
    """Allow the page its own script, those of its server, the camera, and the microphone if needed."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    sources = f"default-src 'none'; script-src 'sha256-{digest}' 'self'; style-src 'unsafe-inline'; img-src data: blob:"
    targets = "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
    return {
        "Content-Security-Policy": f"{sources}; {targets}",
        "Permissions-Policy": f"camera=(self), microphone=({'self' if takes_audio else ''})",
        "Referrer-Policy": "no-referrer",
        **_NO_SNIFFING,
    }


def _read(name: str) -> str:
    return (files("flows.serve.live") / "assets" / name).read_text(encoding="utf-8").strip()
