"""Reads the indexes of many videos concurrently."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from math import inf, isinf
from typing import TYPE_CHECKING

from infra.logs import in_context
from reelabel.errors import JobError
from reelabel.sources.object_info import redact_uri
from reelabel.unexpected import failing_alone
from tasks.frame_cache.look import look_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from reelabel.frames.fetch import VideoReader
    from reelabel.segment import Segment
    from tasks.frame_cache.look import IndexedVideo
    from tasks.survey.clips import Clip

_MAX_CONCURRENT = 32  # which mostly wait for the store
_BATCH = 1000  # whose sizes a store can list together
_NOTED = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenClip:
    clip: Clip
    seen: IndexedVideo | None = None  # its index; None if the video cannot be used
    code: str = ""  # of the failure; empty if there is none
    message: str = ""
    chunks: Sequence[Segment] = ()  # the chunks of its jobs; empty if they are not cut


def read_clips(
    clips: Sequence[Clip],
    reader: VideoReader,
    *,
    limit_s: float | None = None,
    note: Callable[[int], None] = lambda _done: None,
) -> list[SeenClip]:
    """Read the index of each clip's video, each video once; one that cannot be used has a failure.

    After `limit_s` seconds, no further video is started. `note` is called with the number of clips read so far.
    """
    deadline_s = time.monotonic() + limit_s if limit_s is not None else inf
    seen: list[SeenClip] = []
    known: dict[str, SeenClip] = {}
    for batch in _batches(clips, is_limited=limit_s is not None):
        wanted = [uri for uri in dict.fromkeys(clip.uri for clip in batch) if uri not in known]
        for uri, found in _read_batch(wanted, batch, reader, deadline_s):
            known[uri] = found
            if len(known) % _NOTED == 0:
                note(len(seen) + sum(clip.uri in known for clip in batch))
        seen += [replace(known[clip.uri], clip=clip) for clip in batch if clip.uri in known]
        note(len(seen))
        if time.monotonic() > deadline_s:
            break
    return seen


def _batches(clips: Sequence[Clip], *, is_limited: bool) -> Iterator[Sequence[Clip]]:
    for start in range(0, len(clips), size := _MAX_CONCURRENT if is_limited else _BATCH):
        yield clips[start : start + size]


def _read_batch(
    uris: Sequence[str], batch: Sequence[Clip], reader: VideoReader, deadline_s: float
) -> Iterator[tuple[str, SeenClip]]:
    clip_of = {clip.uri: clip for clip in batch}
    infos = reader.objects.stat_many(sorted(uris))

    def look(uri: str) -> SeenClip | None:
        if time.monotonic() > deadline_s:
            return None
        try:
            with failing_alone(f"The survey of {redact_uri(uri)}"):
                return SeenClip(clip=clip_of[uri], seen=look_at(reader, uri, infos.get(uri)))
        except JobError as error:
            return SeenClip(clip=clip_of[uri], code=error.code, message=error.message)

    threads = ThreadPoolExecutor(_MAX_CONCURRENT, thread_name_prefix="survey")
    futures = {threads.submit(in_context(look), uri): uri for uri in uris}
    left_s = None if isinf(deadline_s) else max(0.0, deadline_s - time.monotonic())
    try:
        for future in as_completed(futures, timeout=left_s):
            if found := future.result():
                yield futures[future], found
    except TimeoutError:  # do not wait for a slow store
        pass
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
