"""The report page that a run wrote to the store, as a local file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infra.errors import ObjectError
from infra.objects import ObjectStore
from tasks.report.place import page_uri

if TYPE_CHECKING:
    from uuid import UUID

    from infra.settings import Settings


def download_report(settings: Settings, run_id: UUID) -> str | None:
    """Copy a run's report page from the store into the home folder; return its path, or None if there is no page.

    Without a home folder, return the page's URI.
    """
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
