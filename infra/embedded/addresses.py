"""Fill the addresses of the embedded services into settings that have none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infra.embedded.home import Home, ServiceName
from infra.embedded.postgres import Postgres, forget_variables
from infra.embedded.prefect_server import PrefectServer
from infra.embedded.s3_server import S3Server

if TYPE_CHECKING:
    from collections.abc import Mapping

    from infra.settings import Settings


def missing_services(settings: Settings, wanted: frozenset[ServiceName]) -> frozenset[ServiceName]:
    """Return which of the wanted services must be embedded.

    Services that the user has configured are omitted. Flows scheduled by the user's Prefect run on the user's
    workers. The embedded Prefect needs the embedded Postgres, wherever results are stored.
    """
    replaced = set()
    if settings.database.is_set:
        replaced.add(ServiceName.POSTGRES)
    if settings.store.uri is not None:
        replaced.add(ServiceName.S3)
    if settings.prefect.api_url is not None:
        replaced |= {ServiceName.PREFECT, ServiceName.WORKER}
    embedded = wanted - replaced
    return embedded | {ServiceName.POSTGRES} if ServiceName.PREFECT in embedded else embedded


def with_running_services(settings: Settings) -> Settings:
    """Fill in the addresses of running services; start none, and create no folder.

    Raises:
        ConfigurationError: Other users can write to the folder, and could name services of theirs.
    """
    if not settings.home.exists():
        return settings
    home = Home(settings.home)
    records = {name: home.record(name) for name in missing_services(settings, frozenset(ServiceName))}
    ports = {name: record.port for name, record in records.items() if record and record.process.is_alive()}
    if ports:
        home.require_private()
    if ServiceName.POSTGRES in ports and not settings.database.is_set:
        forget_variables()
    return with_addresses(settings, home, ports)


def with_addresses(settings: Settings, home: Home, ports: Mapping[ServiceName, int]) -> Settings:
    """Fill in the addresses of services, given their ports on 127.0.0.1."""
    updates: dict[str, object] = {"home": home.path}
    if ServiceName.POSTGRES in ports and not settings.database.is_set:
        updates["database"] = Postgres(home).database(ports[ServiceName.POSTGRES], settings.database)
    if ServiceName.S3 in ports:
        updates["store"] = S3Server(home).store(ports[ServiceName.S3], settings.store)
    if ServiceName.PREFECT in ports:
        updates["prefect"] = PrefectServer(home).reached(ports[ServiceName.PREFECT], settings.prefect)
    return settings.model_copy(update=updates)
