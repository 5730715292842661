"""Removing what runs leave on the store beside frames and plans: lists of chosen ids, and pages."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import timedelta

    from infra.objects import ObjectStore

# Nothing else in these folders is ours to remove.
SELECTION = re.compile(r"/[0-9a-f]{16}\.txt$")
PAGE = re.compile(r"/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.html$")


def remove_old_files(
    objects: ObjectStore, folder_uri: str, names: re.Pattern[str], *, age: timedelta, dry_run: bool = False
) -> int:
    """Remove a folder's files of some names that were written longer ago than `age`, by the store's clock.

    Args:
        objects: The store.
        folder_uri: On the store, or a local folder's `file://` URI; one that is not there has no files.
        names: What the URIs of those that may go must match.
        age: What is younger stays.
        dry_run: Count only.

    Returns:
        How many went.
    """
    before, count = datetime.now(UTC) - age, 0
    for info in objects.list(folder_uri):
        if names.search(info.uri) and info.modified is not None and info.modified < before:
            count += 1
            if not dry_run:
                objects.remove(info.uri)
    return count
