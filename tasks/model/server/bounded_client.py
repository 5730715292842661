"""OpenAI's HTTP client with a limit on the size of a response; imported only where the extra is installed."""

from __future__ import annotations

import ssl
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


class ResponseTooLargeError(openai.OpenAIError):
    """A response is larger than any answer; another attempt would not change that."""


class BoundedClient(openai.DefaultHttpxClient):
    """Reads responses up to the limit, as decompressed; beyond it, reading one raises `ResponseTooLargeError`."""

    lost = 0  # requests that failed because a connection could not be made, or broke

    def __init__(self, ca_file: Path | None = None) -> None:
        context = ssl.create_default_context()
        if ca_file:
            context.load_verify_locations(ca_file)
        super().__init__(verify=context)

    def send(self, request: httpx2.Request, *, stream: bool = False, **options: Any) -> httpx2.Response:  # noqa: ANN401
        try:
            response = super().send(request, stream=True, **options)
            vars(response)["iter_bytes"] = partial(_bounded, response.iter_bytes)  # by which all of it is read
            if not stream:
                with closing(response):
                    response.read()
        except httpx2.TransportError:
            self.lost += 1
            raise
        return response


def _bounded(read: Callable[..., Iterator[bytes]], chunk_size: int | None = None) -> Iterator[bytes]:
    size = 0
    for chunk in read(chunk_size):
        size += len(chunk)
        if size > _MAX_BYTES:
            raise ResponseTooLargeError(f"a response of more than {_MAX_BYTES // 1024**2} MiB")
        yield chunk
