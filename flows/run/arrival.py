"""Manifests that arrived: their runs, and the file that says what is wrong with one."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from prefect import get_run_logger
from prefect.runtime import flow_run

from infra.errors import ManifestError
from reelabel.errors import ObjectError
from reelabel.sources.object_store import ObjectStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infra.settings import Settings

# Tag of a flow run that was started because its manifest arrived.
ARRIVED = "arrived"
ERROR_SUFFIX = ".error.txt"


@contextmanager
def broken_manifest_told(manifest: str, settings: Settings) -> Iterator[None]:
    """Write what is wrong with a manifest that arrived to a file beside it; remove the file once it is right.

    Whoever puts manifests in a folder may not see Prefect.
    """
    if ARRIVED not in (flow_run.tags or ()):
        yield
        return
    objects, uri = ObjectStore(settings.store, settings.web), manifest + ERROR_SUFFIX
    try:
        yield
    except ManifestError as error:
        try:
            objects.replace(uri, f"{error.message}\n".encode())
        except (ObjectError, OSError) as refused:
            get_run_logger().warning("%s was not written: %s", uri, refused)
        raise
    if _exists(objects, uri):
        objects.remove(uri)


def _exists(objects: ObjectStore, uri: str) -> bool:
    try:
        objects.stat(uri)
    except ObjectError:
        return False
    return True
