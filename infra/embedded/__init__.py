"""Postgres, S3, Prefect and a worker of our own, for machines that have none."""

from infra.embedded.environment import export
from infra.embedded.home import ServiceName
from infra.embedded.services import ServiceStatus, in_use, needed, running, start, status, stop

__all__ = ["ServiceName", "ServiceStatus", "export", "in_use", "needed", "running", "start", "status", "stop"]
