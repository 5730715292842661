"""The Prefect flows, their deployments, and the command line."""

from infra.log_records import make_logs_printable

# Every process that runs a flow or a command imports this package, and logs only afterwards.
make_logs_printable()
