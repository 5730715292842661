"""The environment of runs, and what Prefect and the database know about them."""

import os

import httpx
from sqlalchemy import func, select

from infra.embedded import export
from infra.embedded.prefect import basic_auth_headers
from tasks.database.tables import RESULT
from tasks.model.identity import TINY_MODEL
from tests.vllm_server import KEY


def environment_of(settings):
    """The environment of commands that start an engine of their own."""
    return os.environ | export(settings) | {"COLUMNS": "160", "REELABEL_MODEL_DTYPE": "float32"}


def served_by(url, environment, **settings):
    """An environment in which a server answers, so that no engine is started, with other settings by their names."""
    server = {"MODEL_BACKEND": "openai", "MODEL_NAME": TINY_MODEL, "SERVER_URL": url, "SERVER_API_KEY": KEY}
    return environment | {f"REELABEL_{name}": str(value) for name, value in (server | settings).items()}


def artifact_of(prefect, run_id, key):
    """Read an artifact of one run, whatever others have published meanwhile."""
    query = {"flow_runs": {"id": {"any_": [str(run_id)]}}, "artifacts": {"key": {"any_": [key]}}}
    [artifact] = _post(prefect, "artifacts/filter", query)
    return artifact["data"]


def state_of(prefect, run_id):
    [flow_run] = _post(prefect, "flow_runs/filter", {"flow_runs": {"id": {"any_": [str(run_id)]}}})
    return flow_run["state"]


def logged(prefect, run_id):
    """Return what Prefect shows as the log of one run."""
    lines = _post(prefect, "logs/filter", {"logs": {"flow_run_id": {"any_": [str(run_id)]}}})
    return "\n".join(line["message"] for line in lines)


def _post(prefect, path, query):
    answer = httpx.post(f"{prefect.api_url}/{path}", json=query, headers=basic_auth_headers(prefect.auth_string))
    return answer.raise_for_status().json()


def count_labels(engine, dataset):
    with engine.connect() as connection:
        return connection.execute(select(func.count()).where(RESULT.c.dataset == dataset)).scalar_one()
