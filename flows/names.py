"""What deployments, flow runs and those who look for them agree on."""

NIGHTLY = "classify/nightly"
ON_DEMAND = "classify/on-demand"
# Every flow run of ours carries it.
TAG = "reelabel"
HEARTBEAT_S = 30
