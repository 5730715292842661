"""The Prefect flows, their deployments, and the command line."""

import os

from infra.log_records import make_logs_printable, show_errors_in_prefect

# Every process that runs a flow or a command imports this package, and logs only afterwards.
make_logs_printable()
show_errors_in_prefect()
if os.environ.get("REELABEL_LOG_FORMAT") == "json":
    from infra.json_logs import log_all_as_json

    log_all_as_json()
