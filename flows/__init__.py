"""The Prefect flows, their deployments, and the command line."""

import os

from infra.logs import set_up_logs

# Every process that runs a flow or a command imports this package, and logs only afterwards.
set_up_logs(as_json=os.environ.get("REELABEL_LOG_FORMAT") == "json")
