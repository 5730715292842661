"""The environment of commands on services that no other module writes to."""

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolUpdate

from tests.flows.runs import environment_of, served_by


@pytest.fixture(scope="module")
def own_environment(own_services):
    return environment_of(own_services)


@pytest.fixture(scope="module")
def served(own_environment, vllm_server):
    return served_by(vllm_server, own_environment)


@pytest.fixture
def idle_worker(prefect_services, prefect_api):  # noqa: ARG001 - whom the client asks
    """Keep the worker from runs whose states a test sets itself."""
    pool = prefect_services.prefect.work_pool
    with get_client(sync_client=True) as client:
        client.update_work_pool(pool, WorkPoolUpdate(is_paused=True))
        yield
        client.update_work_pool(pool, WorkPoolUpdate(is_paused=False))
