"""Services of a benchmark's own: never the user's services or data."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from benchmarks.console import PROGRESS
from infra.embedded import ServiceName, running
from infra.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from infra.settings import Settings

_SERVICES = frozenset({ServiceName.POSTGRES, ServiceName.S3, ServiceName.PREFECT})


@contextmanager
def own_services(wanted: frozenset[ServiceName] = _SERVICES) -> Iterator[Settings]:
    """Run Postgres, S3 and Prefect, or those that are wanted, for this benchmark alone, on the host's cores."""
    user = load_settings()
    ours = {name: type(getattr(user, name))() for name in ("database", "store", "prefect")}
    with TemporaryDirectory(prefix="reelabel-") as home:
        settings = user.model_copy(update=ours | {"home": Path(home)})
        with PROGRESS.status("Starting services"), running(settings, wanted=wanted) as started:
            yield started


@contextmanager
def variables(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables, from which a flow loads its settings, and restore them."""
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
