"""The candidate `live` of an evaluation: each question is asked in a live session once its time in the video has come.

The sessions are those of a running `reelabel serve`. Frames are sent one for each second of the video, as fast as the
server takes them; the times of the questions are those of the video, so nothing depends on the speed.
"""

from __future__ import annotations

import asyncio
import io
import logging
import math
import time
from collections import deque
from contextlib import closing
from typing import TYPE_CHECKING, Any

import polars as pl
from PIL import Image

import reelabel
from reelabel.errors import TransientError, VideoError
from reelabel.live import LiveClient
from reelabel.sources.object_info import redact_uri
from tasks.evaluation.compare import CandidateResults
from tasks.evaluation.scores import Cost
from tasks.frame_cache.pool import decode_pool, video_limits, video_store
from tasks.live.messages import MAX_WAITING

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from infra.settings import Settings
    from reelabel.pool.decode_pool import DecodePool
    from reelabel.sources.object_store import ObjectStore

_LOG = logging.getLogger("reelabel")
NAME = "live"
QUESTIONS = ("prompt", "choices", "system_prompt")
_WINDOW_S = 60  # of context before a question, as in the main results of StreamingBench
_LONG_SIDE_PX = 640
_QUALITY = 90
_BATCH_FRAMES = 32
_PAUSE_S = 0.1
_LABELS: dict[str, pl.DataType] = {
    "job_id": pl.String(),
    "label": pl.String(),
    "probabilities": pl.List(pl.Float64()),
    "choice_mass": pl.Float64(),
}


def answer_live(jobs: pl.DataFrame, settings: Settings, *, url: str) -> CandidateResults:
    """Ask the questions of jobs in live sessions, one for each video and system prompt; return the labels.

    A question sees the video from its `start_s` to its `end_s`. A job whose video cannot be read, or whose question is
    refused, counts as failed. `jobs` has the manifest's columns `job_id`, `video_uri`, `start_s`, `end_s`, and those of
    `QUESTIONS`.

    Raises:
        ConfigurationError: The server is not there, or refuses a session.
        TransientError: A session was lost.
    """
    began_s, objects, model = time.monotonic(), video_store(settings), ""
    done: dict[str, dict[str, Any]] = {}
    shared = ["video_uri", "start_s", "system_prompt"]
    sessions = jobs.sort("end_s", nulls_last=True, maintain_order=True).group_by(shared, maintain_order=True)
    with decode_pool(settings, processes=1) as pool:
        for (uri, start_s, system_prompt), questions in sessions:
            config = {"window_s": _WINDOW_S, "sink": 0}
            config |= {"system_prompt": system_prompt} if system_prompt else {}
            client = LiveClient(url, token=_token_for(url, settings), **config)
            try:
                with closing(_frames(str(uri), start_s, settings, pool=pool, objects=objects)) as frames:
                    model, answers = asyncio.run(_watch(frames, questions, client))
            except VideoError as error:
                _LOG.warning("%s: %s", redact_uri(str(uri)), error.message)
            else:
                done |= answers
    labels = [{"job_id": job_id, "label": event["text"], **event} for job_id, event in done.items()]
    wall_s = time.monotonic() - began_s
    return CandidateResults(
        name=NAME,
        spec_id="",
        model=model,
        sampling={"sampler": NAME, "num_frames": 0},
        labels=pl.DataFrame(labels, schema=_LABELS),
        failed=[job_id for job_id in jobs["job_id"] if job_id not in done],
        cost=Cost(
            wall_s=wall_s,
            jobs_per_s=len(done) / wall_s,
            videos=jobs["video_uri"].n_unique(),
            engine_s=sum(event["total_ms"] for event in done.values()) / 1e3,
        ),
    )


def _token_for(url: str, settings: Settings) -> str | None:
    """Return the token for the configured server: whoever starts a deployment may name any address."""
    serve = settings.serve
    host = f"[{serve.host}]" if ":" in serve.host else serve.host
    is_configured = url.removeprefix("http://").rstrip("/") == f"{host}:{serve.port}"
    return serve.token.get_secret_value() if serve.token and is_configured else None


def _frames(
    uri: str, start_s: float | None, settings: Settings, *, pool: DecodePool, objects: ObjectStore
) -> Generator[tuple[float, bytes], None, None]:
    with reelabel.open(uri, pool=pool, store=objects, limits=video_limits(settings)) as video:
        first_s = start_s or 0.0
        times_s = [first_s + at for at in range(math.ceil((video.info.duration_s or 1.0) - first_s))]
        for first in range(0, len(times_s), _BATCH_FRAMES):
            part = times_s[first : first + _BATCH_FRAMES]
            for time_s, image in zip(part, video.frames_at(part), strict=True):
                yield time_s, _jpeg(image)


def _jpeg(image: Any) -> bytes:  # noqa: ANN401 - an array
    picture, written = Image.fromarray(image), io.BytesIO()
    picture.thumbnail((_LONG_SIDE_PX, _LONG_SIDE_PX))
    picture.save(written, "JPEG", quality=_QUALITY)
    return written.getvalue()


async def _watch(
    frames: Iterator[tuple[float, bytes]], questions: pl.DataFrame, client: LiveClient
) -> tuple[str, dict[str, dict[str, Any]]]:
    """Show a video's frames, and ask its questions in between; return the model's name, and the answers by job."""
    waiting = deque(questions.iter_rows(named=True))
    async with client:
        session = _Session(client)
        while frame := await asyncio.to_thread(next, frames, None):  # decoding blocks
            time_s, picture = frame
            while waiting and waiting[0]["end_s"] is not None and waiting[0]["end_s"] < time_s:
                await session.ask(waiting.popleft())
            if not waiting:
                break
            await session.show(picture, time_s)
        for job in waiting:
            await session.ask(job)
        return client.session["model"], await session.finish()


class _Session:
    """A session that waits while its connection is resumed, or while as many questions are open as it may have."""

    def __init__(self, client: LiveClient) -> None:
        self._client = client
        self._open: set[str] = set()
        self._answers: dict[str, dict[str, Any]] = {}
        self._listening = asyncio.create_task(self._listen())

    async def show(self, picture: bytes, time_s: float) -> None:
        while not await self._client.send_frame(picture, time_s=time_s):
            await self._pause()

    async def ask(self, job: dict[str, Any]) -> None:
        while len(self._open) >= MAX_WAITING:
            await self._pause()
        self._open.add(job["job_id"])
        await self._client.ask(job["prompt"], query_id=job["job_id"], choices=job["choices"])

    async def finish(self) -> dict[str, dict[str, Any]]:
        await self._client.finish()
        await self._listening
        if self._client.is_lost:
            raise _lost()
        return self._answers

    async def _pause(self) -> None:
        await asyncio.wait([self._listening], timeout=_PAUSE_S)
        if self._listening.done():
            self._listening.result()
            raise _lost()

    async def _listen(self) -> None:
        async for event in self._client:
            if event["type"] == "response.done":
                self._answers[event["query_id"]] = event
            elif event["type"] == "error":
                _LOG.warning("%s: %s", event["query_id"] or "The session", event["message"])
            else:
                continue
            self._open.discard(event["query_id"])


def _lost() -> TransientError:
    return TransientError("The session with the server of live sessions was lost; evaluate again.")
