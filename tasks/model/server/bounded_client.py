"""OpenAI's HTTP client with a limit on the size of a response; imported only where the extra is installed."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

import httpx2
import openai

if TYPE_CHECKING:
    from pathlib import Path

_MAX_BYTES = 16 * 1024**2  # of a response that is not streamed; that of a question has some thousand
_OF_THE_WIRE = {"content-encoding", "content-length", "transfer-encoding"}


class ResponseTooLargeError(openai.OpenAIError):
    """A response is larger than any answer; another attempt would not change that."""


class BoundedClient(openai.DefaultHttpxClient):
    """Reads responses up to the limit, as decompressed.

    Attributes:
        lost: How often a connection was lost, or not made, so far.
    """

    lost = 0

    def __init__(self, ca_file: Path | None = None) -> None:
        """Trust an authority besides the public ones.

        Raises:
            OSError: The file cannot be read, or is no certificate.
        """
        context = ssl.create_default_context()
        if ca_file:
            context.load_verify_locations(ca_file)
        super().__init__(verify=context)

    def send(self, request: httpx2.Request, *, stream: bool = False, **options: Any) -> httpx2.Response:  # noqa: ANN401
        """Send a request.

        Raises:
            ResponseTooLargeError: The response exceeds the limit.
        """
        try:
            response = super().send(request, stream=True, **options)
        except httpx2.TransportError:
            self.lost += 1
            raise
        if stream:
            return response
        body = bytearray()
        try:
            for chunk in response.iter_bytes():
                body += chunk
                if len(body) > _MAX_BYTES:
                    raise ResponseTooLargeError(f"a response of more than {_MAX_BYTES // 1024**2} MiB")
        finally:
            response.close()
        headers = [(name, value) for name, value in response.headers.multi_items() if name not in _OF_THE_WIRE]
        return httpx2.Response(response.status_code, headers=headers, content=bytes(body), request=response.request)
