"""The environment of commands on services that no other module writes to."""

import os

import pytest

from infra.embedded import export
from tasks.model.identity import TINY_MODEL
from tests.vllm_server import KEY


@pytest.fixture(scope="module")
def own_environment(own_services):
    """What answers is an engine of the command's own."""
    return os.environ | export(own_services) | {"COLUMNS": "160", "REELABEL_MODEL_DTYPE": "float32"}


@pytest.fixture(scope="module")
def served(own_environment, vllm_server):
    """The server that all tests share answers, so that no engine is started."""
    server = {"MODEL_BACKEND": "openai", "MODEL_NAME": TINY_MODEL, "SERVER_URL": vllm_server, "SERVER_API_KEY": KEY}
    return own_environment | {f"REELABEL_{name}": str(value) for name, value in server.items()}
