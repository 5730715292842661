"""Stat many videos: their fingerprints, to compare with those they had when labelled, and what is wrong with them."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from infra.logs import in_context
from reelabel.errors import JobError, VideoEmptyError
from reelabel.frames.fetch import stat_video
from reelabel.sources.object_info import WEB_SCHEMES, redact_uri, scheme_of
from reelabel.unexpected import failing_alone

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from reelabel.sources.object_store import ObjectStore

_MAX_CONCURRENT_LOOKUPS = 16


def current_fingerprints(objects: ObjectStore, uris: Sequence[str]) -> list[str | None]:
    """Look up the fingerprints of videos, many per request if their store can list them; None if missing or refused.

    The videos are sorted, so that those in the same folder are adjacent.

    Raises:
        TransientError: The store is unavailable.
    """
    listed = objects.stat_many(uris)

    def look_up(uri: str) -> str | None:
        try:
            with failing_alone(f"The look at {redact_uri(uri)}"):
                return (listed.get(uri) or stat_video(objects, uri)).fingerprint
        except JobError:
            return None

    with ThreadPoolExecutor(_MAX_CONCURRENT_LOOKUPS) as threads:
        return list(threads.map(in_context(look_up), uris))


@dataclass(frozen=True, slots=True)
class LookedAt:
    """The result of a stat of many videos.

    Attributes:
        faults: Why videos cannot be used, by URI.
        unasked: Videos on the web that were not looked at, because the time was over.
    """

    faults: dict[str, JobError]
    unasked: list[str]


def unusable_videos(
    objects: ObjectStore, uris: Sequence[str], *, allow_roots: tuple[Path, ...] = (), web_until_s: float = inf
) -> LookedAt:
    """Find the videos that cannot be used, as far as a look at their names, permissions and sizes tells.

    Args:
        objects: The object store, web and local files, by URI.
        uris: The videos, sorted so that those in the same folder are adjacent.
        allow_roots: Folders that local videos must lie in; empty allows every folder.
        web_until_s: Time, by `time.monotonic`, after which no further web server is asked: each video takes a request
            of its own.

    Raises:
        TransientError: The store is unavailable.
    """
    listed = objects.stat_many(uris)
    unasked: list[str] = []

    def fault_of(uri: str) -> JobError | None:
        if scheme_of(uri) in WEB_SCHEMES and time.monotonic() > web_until_s:
            unasked.append(uri)
            return None
        try:
            with failing_alone(f"The look at {redact_uri(uri)}"):
                info = listed.get(uri) or stat_video(objects, uri, allow_roots=allow_roots)
        except JobError as error:
            return error
        return None if info.size_bytes else VideoEmptyError(f"{redact_uri(uri)} is empty.")

    with ThreadPoolExecutor(_MAX_CONCURRENT_LOOKUPS) as threads:
        faults = zip(uris, threads.map(in_context(fault_of), uris), strict=True)
        return LookedAt({uri: fault for uri, fault in faults if fault}, unasked)
