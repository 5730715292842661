"""The page `/live`: a camera in the browser, a microphone if the model accepts audio, and nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
from functools import cache, partial
from importlib.metadata import version
from importlib.resources import files

from fastapi import APIRouter, Response
from fastapi.responses import HTMLResponse
from markupsafe import Markup

from tasks.report.render import environment, read

PATH = "/live"
# Browsers take the code of an AudioWorklet, and modules that other pages may import, from files of their own alone.
_SCRIPTS = ("microphone.js", "session.js")
_NO_SNIFFING = {"X-Content-Type-Options": "nosniff"}
# Neither holds a secret; the page asks for the token where there is one.
OPEN_PATHS = frozenset({PATH, *(f"{PATH}/{name}" for name in _SCRIPTS)})


def page_router(*, needs_token: bool, takes_audio: bool, produces_speech: bool) -> APIRouter:
    """Return the routes of the page."""
    router = APIRouter(include_in_schema=False)

    @router.get(PATH)
    async def live_page() -> HTMLResponse:
        page = _page(needs_token=needs_token, takes_audio=takes_audio, produces_speech=produces_speech)
        return HTMLResponse(page, headers=_headers(takes_audio=takes_audio))

    for name in _SCRIPTS:
        router.add_api_route(f"{PATH}/{name}", partial(_script_file, name), response_model=None)
    return router


async def _script_file(name: str) -> Response:
    headers = {**_NO_SNIFFING, "Access-Control-Allow-Origin": "*"}
    return Response(_read(name), media_type="text/javascript", headers=headers)


@cache
def _page(*, needs_token: bool, takes_audio: bool, produces_speech: bool) -> str:
    return (
        environment()
        .from_string(_read("live.html.jinja"))
        .render(
            style=Markup(read("style.css") + "\n" + _read("live.css")),  # noqa: S704 - our own files
            script=Markup(_script()),  # noqa: S704
            needs_token=needs_token,
            takes_audio=takes_audio,
            produces_speech=produces_speech,
            version=version("reelabel"),
        )
    )


@cache
def _headers(*, takes_audio: bool) -> dict[str, str]:
    """Return a policy that allows this script, those of its own server, the camera, and the microphone if needed."""
    digest = base64.b64encode(hashlib.sha256(_script().encode()).digest()).decode()
    loads = f"default-src 'none'; script-src 'sha256-{digest}' 'self'; style-src 'unsafe-inline'; img-src data: blob:"
    leads = "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
    return {
        "Content-Security-Policy": f"{loads}; {leads}",
        "Permissions-Policy": f"camera=(self), microphone=({'self' if takes_audio else ''})",
        "Referrer-Policy": "no-referrer",
        **_NO_SNIFFING,
    }


@cache
def _script() -> str:
    return "\n".join((_read("live.js"), _read("theme.js")))


def _read(name: str) -> str:
    return (files("flows.serve.live") / "assets" / name).read_text(encoding="utf-8").strip()
