"""Postgres, S3, Prefect and a worker of our own, for machines that have none."""

from infra.embedded.environment import export
from infra.embedded.home import ServiceName
from infra.embedded.services import ServiceStatus, running, start, status, stop

__all__ = ["ServiceName", "ServiceStatus", "export", "running", "start", "status", "stop"]
