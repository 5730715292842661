"""A web server, and a store that reads it."""

import pytest

from infra.settings import StoreSettings, WebSettings
from reelabel.sources.object_store import ObjectStore
from tests.reelabel.sources.web_server import serving

BODY = bytes(range(256)) * 1000


@pytest.fixture(scope="module")
def server():
    with serving() as server:
        yield server


def store_with(**changed):
    web = WebSettings(**{"allow_private": True, "timeout_s": 5, "max_attempts": 3} | changed)
    return ObjectStore(StoreSettings(), web)


@pytest.fixture
def store():
    return store_with()
