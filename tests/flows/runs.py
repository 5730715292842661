"""What Prefect knows about a run."""

import httpx

from infra.basic_auth import basic_auth_headers


def artifact_of(prefect, run_id, key):
    """Read an artifact of one run, whatever others have published meanwhile."""
    query = {"flow_runs": {"id": {"any_": [str(run_id)]}}, "artifacts": {"key": {"any_": [key]}}}
    [artifact] = _post(prefect, "artifacts/filter", query)
    return artifact["data"]


def state_of(prefect, run_id):
    [flow_run] = _post(prefect, "flow_runs/filter", {"flow_runs": {"id": {"any_": [str(run_id)]}}})
    return flow_run["state"]


def _post(prefect, path, query):
    answer = httpx.post(f"{prefect.api_url}/{path}", json=query, headers=basic_auth_headers(prefect.auth_string))
    return answer.raise_for_status().json()
