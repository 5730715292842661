"""Names shared by deployments, flow runs and their observers."""

from reelabel.wording import printable

NIGHTLY = "classify/nightly"
ON_DEMAND = "classify/on-demand"
# Tag of all our flow runs.
TAG = "reelabel"
# Environment of every process of our runs. Automations detect lost runs by the heartbeat. A Prefect server whose
# database is restarting responds with 500, which its client does not retry by default.
PREFECT_VARIABLES = {"PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30", "PREFECT_CLIENT_RETRY_EXTRA_CODES": "500"}


def manifest_run_name() -> str:
    """Return the name of the current flow run, from its flow and the manifest or manifests that it was given."""
    from prefect.runtime import flow_run  # noqa: PLC0415 - commands import this module before they configure Prefect

    given = flow_run.parameters
    return printable(f"{flow_run.flow_name}-{given['manifest' if 'manifest' in given else 'manifests']}")
