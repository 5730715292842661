"""The environment of commands on services that no other module writes to."""

import shutil

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolUpdate

from infra.database.connect import connected
from tests.command_line import reelabel as run_command
from tests.flows.runs import environment_of, served_by
from tests.shared import common_folder, made_once


@pytest.fixture(scope="module")
def own_environment(own_services):
    return environment_of(own_services)


@pytest.fixture(scope="module")
def server(stub_server):
    """The model server of runs; modules that need a model's answers replace it by `vllm_server`."""
    return stub_server


@pytest.fixture(scope="module")
def served(own_environment, server):
    return served_by(server, own_environment)


@pytest.fixture(scope="module")
def reelabel(served):
    """Run a command on these services, with a model server; returns how it ended."""
    return lambda *arguments, **environment: run_command(served | {"COLUMNS": "200"} | environment, *arguments)


@pytest.fixture(scope="module")
def engine(own_services):
    """Their database."""
    with connected(own_services.database) as engine:
        yield engine


@pytest.fixture
def client(prefect_api):  # noqa: ARG001 - which it talks to
    """A client of the shared Prefect server."""
    with get_client(sync_client=True) as client:
        yield client


@pytest.fixture
def mlflow_uri(tmp_path, tmp_path_factory):
    """URI of an empty database of MLflow's: a copy, as its migrations take seconds."""
    import mlflow  # noqa: PLC0415 - in the worker processes that use it, not in all

    template = common_folder(tmp_path_factory) / "mlflow.db"

    def migrate():
        mlflow.MlflowClient(f"sqlite:///{template}").search_experiments()
        return str(template)

    shutil.copy(made_once(template.with_suffix(".json"), migrate), tmp_path)
    return f"sqlite:///{tmp_path}/mlflow.db"


@pytest.fixture
def idle_worker(prefect_services, prefect_api):  # noqa: ARG001 - whom the client asks
    """Keep the worker from runs whose states a test sets itself."""
    pool = prefect_services.prefect.work_pool
    with get_client(sync_client=True) as client:
        client.update_work_pool(pool, WorkPoolUpdate(is_paused=True))
        yield
        client.update_work_pool(pool, WorkPoolUpdate(is_paused=False))
