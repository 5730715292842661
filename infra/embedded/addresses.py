"""Settings with the addresses of our own services filled in, where the user has set none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infra.embedded.home import Home, ServiceName
from infra.embedded.postgres import Postgres
from infra.embedded.prefect_server import PrefectServer
from infra.embedded.s3_server import S3Server

if TYPE_CHECKING:
    from collections.abc import Mapping

    from infra.settings import Settings


def needed(settings: Settings, wanted: frozenset[ServiceName]) -> frozenset[ServiceName]:
    """Say which of the wanted services are ours to start.

    Left out is what the user has; flows scheduled by their Prefect run on their workers. Ours
    needs our Postgres, wherever the results go.
    """
    replaced = set()
    if settings.database.url is not None:
        replaced.add(ServiceName.POSTGRES)
    if settings.store.uri is not None:
        replaced.add(ServiceName.S3)
    if settings.prefect.api_url is not None:
        replaced |= {ServiceName.PREFECT, ServiceName.WORKER}
    ours = wanted - replaced
    return ours | {ServiceName.POSTGRES} if ServiceName.PREFECT in ours else ours


def attached(settings: Settings) -> Settings:
    """Fill in the addresses of those services that run; starts none, and makes no folder."""
    if not settings.home.exists():
        return settings
    home = Home(settings.home)
    records = {name: home.record(name) for name in needed(settings, frozenset(ServiceName))}
    ports = {name: record.port for name, record in records.items() if record and record.process.is_alive()}
    return filled(settings, home, ports)


def filled(settings: Settings, home: Home, ports: Mapping[ServiceName, int]) -> Settings:
    """Fill in the addresses of services by their ports on 127.0.0.1."""
    updates: dict[str, object] = {"home": home.path}
    if ServiceName.POSTGRES in ports and settings.database.url is None:
        updates["database"] = Postgres(home).database(ports[ServiceName.POSTGRES], settings.database)
    if ServiceName.S3 in ports:
        updates["store"] = S3Server(home).store(ports[ServiceName.S3], settings.store)
    if ServiceName.PREFECT in ports:
        updates["prefect"] = PrefectServer(home).reached(ports[ServiceName.PREFECT], settings.prefect)
    return settings.model_copy(update=updates)
