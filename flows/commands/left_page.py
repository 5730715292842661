"""The page that a run has left on the store, where a browser opens it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infra.errors import ObjectError
from infra.objects import ObjectStore
from tasks.report.place import page_uri

if TYPE_CHECKING:
    from uuid import UUID

    from infra.settings import Settings


def find_page(settings: Settings, run_id: UUID) -> str | None:
    """Name the page that a run has left, where a browser opens it if we have a folder; None where it has left none."""
    assert settings.store.uri is not None
    uri = page_uri(settings.store.uri, run_id)
    try:
        page = ObjectStore(settings.store, settings.web).read(uri)
    except ObjectError:
        return None
    if not settings.home.is_dir():
        return uri
    target = settings.home / "reports" / f"{run_id}.html"
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(page)
    return str(target.absolute())
