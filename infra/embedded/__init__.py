"""Embedded services: Postgres, S3, Prefect and a worker, for machines that have none."""

from infra.embedded.client import ServiceStatus as ServiceStatus
from infra.embedded.client import in_use as in_use
from infra.embedded.client import is_kept as is_kept
from infra.embedded.client import missing_services as missing_services
from infra.embedded.client import running as running
from infra.embedded.client import start as start
from infra.embedded.client import status as status
from infra.embedded.client import stop as stop
from infra.embedded.client import with_running_services as with_running_services
from infra.embedded.environment import export as export
from infra.embedded.full_disk import full_disk_behind as full_disk_behind
from infra.embedded.full_disk import full_disk_named as full_disk_named
from infra.embedded.home import ServiceName as ServiceName
from infra.embedded.postgres import postgres_folder as postgres_folder
from infra.embedded.prefect import login_path as login_path
from infra.embedded.s3_server import STORE_URI as STORE_URI
from infra.embedded.s3_server import s3_program as s3_program
