"""Backends that ask a server."""

import pytest

from infra.settings import ServerSettings
from tasks.domain import ONE_VIDEO
from tasks.model.server.backend import ServerBackend
from tests.stub_server import encoder
from tests.vllm_server import KEY


@pytest.fixture
def make_backend():
    """Make what asks a server, with its key and its model's tokenizer; it is closed when the test ends."""
    backends = []

    def make(url, *, is_tokenizer_known=True, encode=None, media=ONE_VIDEO, named=None, template_args=None, **settings):
        encode = encode or encoder() if is_tokenizer_known else None
        settings = {"url": url, "api_key": KEY, "max_attempts": 2} | settings
        backends.append(
            ServerBackend(
                ServerSettings(**settings), encode=encode, media=media, named=named, template_args=template_args
            )
        )
        return backends[-1]

    yield make
    for backend in backends:
        backend.close()
