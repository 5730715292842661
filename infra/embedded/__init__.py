"""Embedded services: Postgres, S3, Prefect and a worker, for machines that have none."""

from infra.embedded.client import (
    ServiceStatus,
    in_use,
    is_kept,
    missing_services,
    running,
    start,
    status,
    stop,
    with_running_services,
)
from infra.embedded.environment import export
from infra.embedded.full_disk import full_disk_behind, full_disk_named
from infra.embedded.home import ServiceName
from infra.embedded.postgres import postgres_folder
from infra.embedded.prefect import login_path
from infra.embedded.s3_server import STORE_URI, s3_program

__all__ = [
    "STORE_URI",
    "ServiceName",
    "ServiceStatus",
    "export",
    "full_disk_behind",
    "full_disk_named",
    "in_use",
    "is_kept",
    "login_path",
    "missing_services",
    "postgres_folder",
    "running",
    "s3_program",
    "start",
    "status",
    "stop",
    "with_running_services",
]
