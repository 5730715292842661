"""The page `/live`: a camera in the browser, as one file that loads nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.metadata import version
from importlib.resources import files

from fastapi import APIRouter
from fastapi.responses import HTMLResponse
from markupsafe import Markup

from tasks.report.rendering import environment
from tasks.report.rendering import read as read_report_asset

PATH = "/live"


def page_router(*, needs_token: bool) -> APIRouter:
    """Return the route of the page, which holds no secret, and asks for the token where there is one."""
    router = APIRouter()

    @router.get(PATH, response_class=HTMLResponse, include_in_schema=False)
    async def live_page() -> HTMLResponse:
        return HTMLResponse(_page(needs_token=needs_token), headers=_headers())

    return router


@cache
def _page(*, needs_token: bool) -> str:
    return (
        environment()
        .from_string(_read("live.html.jinja"))
        .render(
            style=Markup(read_report_asset("assets", "style.css") + "\n" + _read("live.css")),  # noqa: S704 - our own files
            script=Markup(_script()),  # noqa: S704
            needs_token=needs_token,
            version=version("reelabel"),
        )
    )


@cache
def _headers() -> dict[str, str]:
    """Return a policy that allows this script alone, its own server, and the camera."""
    digest = base64.b64encode(hashlib.sha256(_script().encode()).digest()).decode()
    loads = f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data: blob:"
    leads = "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
    return {
        "Content-Security-Policy": f"{loads}; {leads}",
        "Permissions-Policy": "camera=(self), microphone=()",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }


@cache
def _script() -> str:
    scripts = (read_report_asset("assets", "theme.js"), _read("live.js"))
    return '"use strict";\n{{\n{}\n}}'.format("\n".join(scripts))


def _read(name: str) -> str:
    return (files("flows.serve.live") / "assets" / name).read_text(encoding="utf-8").strip()
