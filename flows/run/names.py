"""Names shared by deployments, flow runs and their observers."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from reelabel.text import printable

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


def no_worker_message(stage: str, *, model: str | None = None) -> str:
    """Say how to start a worker of a stage, without a full stop; `model` is one other than that of the settings."""
    start = shlex.join(["reelabel", "worker", stage, *(["--model", model] if model and stage == "infer" else [])])
    loading = ", unless one is loading its model" if stage == "infer" else ""
    return f"No {stage} worker has a shard: start one by `{start}`{loading}"


def run_name(kind: str, dataset: str, at: datetime, *, where: str = "") -> str:
    """Return the name of a flow run, which tells it from others: `classify animals 2026-11-01 02:00`."""
    return printable(" ".join(filter(None, (kind, dataset, f"{at:%Y-%m-%d %H:%M}", where))))
