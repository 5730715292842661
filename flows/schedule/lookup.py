"""Looking up deployments and flow runs in Prefect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prefect.exceptions import ObjectNotFound

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun
    from prefect.client.schemas.responses import DeploymentResponse

_PAGE = 200


def find_deployment(client: SyncPrefectClient, name: str) -> DeploymentResponse | None:
    """Return a deployment; None if there is none of this name."""
    try:
        return client.read_deployment_by_name(name)
    except ObjectNotFound:
        return None


def list_flow_runs(client: SyncPrefectClient, **wanted: Any) -> list[FlowRun]:  # noqa: ANN401 - Prefect's own filters
    """List all flow runs that the filters of `read_flow_runs` let through, which gives so many at a time."""
    found: list[FlowRun] = []
    while True:
        page = client.read_flow_runs(**wanted, limit=_PAGE, offset=len(found))
        found += page
        if len(page) < _PAGE:
            return found
