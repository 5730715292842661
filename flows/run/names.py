"""Names shared by deployments, flow runs and their observers."""

NIGHTLY = "classify/nightly"
ON_DEMAND = "classify/on-demand"
# Tag of all our flow runs.
TAG = "reelabel"
# Environment of every process of our runs. Automations detect lost runs by the heartbeat. A Prefect server whose
# database is restarting responds with 500, which its client does not retry by default.
PREFECT_VARIABLES = {"PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30", "PREFECT_CLIENT_RETRY_EXTRA_CODES": "500"}
