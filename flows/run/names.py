"""Names shared by deployments, flow runs and their observers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reelabel.text import escape_controls

if TYPE_CHECKING:
    from datetime import datetime

NIGHTLY = "classify/nightly"
WATCH = "watch/manifests"
# Tag of all our flow runs.
TAG = "reelabel"
# Environment of every process of our runs. Automations detect lost runs by the heartbeat. A Prefect server whose
# database is restarting responds with 500, which its client does not retry by default.
PREFECT_VARIABLES = {"PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30", "PREFECT_CLIENT_RETRY_EXTRA_CODES": "500"}


def on_demand(flow: str) -> str:
    """Return the name of the deployment by which a flow is started on demand: classify/on-demand."""
    return f"{flow}/on-demand"


def run_name(kind: str, dataset: str, at: datetime, *, where: str = "") -> str:
    """Return the name of a flow run, such as `classify animals 2026-11-01 02:00`."""
    return escape_controls(" ".join(filter(None, (kind, dataset, f"{at:%Y-%m-%d %H:%M}", where))))
