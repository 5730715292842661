"""What deployments, flow runs and those who look for them agree on."""

NIGHTLY = "classify/nightly"
ON_DEMAND = "classify/on-demand"
# Every flow run of ours carries it.
TAG = "reelabel"
# What Prefect needs to know in every process of a run of ours. Automations judge lost runs by the
# heartbeat; a server whose database starts again answers 500, which its client takes for final.
PREFECT_VARIABLES = {"PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30", "PREFECT_CLIENT_RETRY_EXTRA_CODES": "500"}
# Marks log records that say what is waited for.
WAITING = "waiting"
