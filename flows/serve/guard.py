"""Authentication: refuses requests without the token, and from pages of other web sites."""

from __future__ import annotations

import hmac
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers

from flows.serve.errors import error_response

if TYPE_CHECKING:
    from fastapi.responses import JSONResponse
    from starlette.types import ASGIApp, Receive, Scope, Send

    from infra.settings import ServeSettings

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
# Probes of orchestrators have no token, and learn only that the service is up.
OPEN_PATHS = frozenset({"/health"})


class Guard:
    """Refuses unauthorised requests and WebSockets before anything of them is read.

    A browser lets any web site send requests to addresses that its user can reach, including loopback: pages of other
    sites are refused by their Origin. A site that points its name at this address (DNS rebinding) is refused by the
    Host header, unless a token protects the service.
    """

    def __init__(self, app: ASGIApp, *, settings: ServeSettings, open_paths: frozenset[str] = OPEN_PATHS) -> None:
        self._app = app
        self._settings = settings
        self._open_paths = open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        refusal = self._refuse(scope)
        if refusal is None:
            await self._app(scope, receive, send)
            return
        # Before a WebSocket is accepted, an ASGI server sends this as the response to the handshake.
        await refusal(scope, receive, send)

    def _refuse(self, scope: Scope) -> JSONResponse | None:
        headers = Headers(scope=scope)
        if (host := self._foreign_host(headers)) is not None:
            return error_response(
                "host_refused",
                f"This service listens on loopback, not as {host}; use 127.0.0.1, or set serve.token.",
                HTTPStatus.MISDIRECTED_REQUEST,
            )
        if (origin := self._foreign_origin(headers)) is not None:
            return error_response(
                "origin_refused",
                f"Origin {origin} is not allowed; add it to serve.origins.",
                HTTPStatus.FORBIDDEN,
            )
        if scope["path"] not in self._open_paths and not self._has_token(scope, headers):
            return error_response(
                "unauthorized",
                "This service requires its token; send the header Authorization: Bearer TOKEN.",
                HTTPStatus.UNAUTHORIZED,
            )
        return None

    def _foreign_host(self, headers: Headers) -> str | None:
        if self._settings.token or self._settings.host not in LOOPBACK:
            return None
        host = headers.get("host", "")
        return None if _name_in(host) in LOOPBACK else host or "named"

    def _foreign_origin(self, headers: Headers) -> str | None:
        origin = headers.get("origin")
        if origin is None or origin in self._settings.origins or origin.partition("://")[2] == headers.get("host"):
            return None
        return origin

    def _has_token(self, scope: Scope, headers: Headers) -> bool:
        if self._settings.token is None:
            return True
        expected = self._settings.token.get_secret_value().encode()
        scheme, _, credentials = headers.get("authorization", "").partition(" ")
        token = credentials.strip().encode("latin-1")  # as Starlette has decoded it
        if scope["type"] == "websocket" and not token:  # a browser's WebSocket cannot set headers
            [credentials, *_] = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])
            scheme, token = "bearer", credentials.encode()
        return scheme.lower() == "bearer" and hmac.compare_digest(token, expected)


def _name_in(host: str) -> str | None:
    """Return the name in a Host header; None unless the header is a host with an optional port."""
    try:
        split = urlsplit(f"//{host}")
        is_whole = split.netloc == host and "@" not in host and (split.port is not None or not host.endswith(":"))
    except ValueError:
        return None
    return split.hostname if is_whole else None
