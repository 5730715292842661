"""The environment of commands on services that no other module writes to."""

import pytest

from tests.flows.runs import environment_of, served_by


@pytest.fixture(scope="module")
def own_environment(own_services):
    return environment_of(own_services)


@pytest.fixture(scope="module")
def served(own_environment, vllm_server):
    return served_by(vllm_server, own_environment)
