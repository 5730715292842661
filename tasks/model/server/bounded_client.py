"""OpenAI's HTTP client with limits on a response's size and time; imported only where the extra is installed."""

from __future__ import annotations

import math
import ssl
import time
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

import httpx2
import openai

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

# Of a response, streamed or not. A label takes a few thousand, speech about 4 MiB a minute.
_MAX_BYTES = 16 * 1024**2
_UNTIL_S = "until_s"  # by `time.monotonic`, among a request's extensions


class ResponseTooLargeError(openai.OpenAIError):
    """A response is larger than any answer; another attempt would not change that."""


class BoundedClient(openai.DefaultHttpxClient):
    """Reads responses up to the limit, as decompressed; beyond it, reading one raises `ResponseTooLargeError`.

    The timeout of a read is also that of the whole response, unless it is streamed.
    """

    lost = 0  # requests that failed because a connection could not be made, or broke

    def __init__(self, ca_file: Path | None = None) -> None:
        context = ssl.create_default_context()
        if ca_file:
            context.load_verify_locations(ca_file)
        super().__init__(verify=context, event_hooks={"response": [_bound]})  # called for redirects, too

    def send(self, request: httpx2.Request, *, stream: bool = False, **options: Any) -> httpx2.Response:  # noqa: ANN401
        try:
            if not stream:
                request.extensions[_UNTIL_S] = time.monotonic() + request.extensions["timeout"]["read"]
            response = super().send(request, stream=True, **options)
            if not stream:
                with closing(response):
                    response.read()
        except httpx2.TransportError:
            self.lost += 1
            raise
        return response


def _bound(response: httpx2.Response) -> None:
    response.encoding = "utf-8"  # as all JSON is, whatever its header says
    # All of a response is read by this method.
    vars(response)["iter_bytes"] = partial(_read, response.iter_bytes, response.request)


def _read(
    read: Callable[..., Iterator[bytes]], request: httpx2.Request, chunk_size: int | None = None
) -> Iterator[bytes]:
    size, until_s = 0, request.extensions.get(_UNTIL_S, math.inf)
    for chunk in read(chunk_size):
        size += len(chunk)
        if size > _MAX_BYTES:
            raise ResponseTooLargeError(f"a response of more than {_MAX_BYTES // 1024**2} MiB")
        if time.monotonic() > until_s:
            raise httpx2.ReadTimeout("timed out", request=request)
        yield chunk
