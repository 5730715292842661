"""Videos that have been embedded: objects on the store, and made-up embeddings in files of the product's writer."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from reelabel.segment import WHOLE
from reelabel.sources.object_info import ObjectInfo
from reelabel.sources.object_store import ObjectStore
from tasks.description.chunks import cut_chunks
from tasks.description.described import embedded_chunks, scenes_of
from tasks.description.embeddings import Embeddings, normalize
from tasks.description.outline import Outline, OutlineFiles
from tasks.description.pooling import pool_chunks
from tasks.description.scene_file import SceneFiles
from tasks.description.scenes.change import SceneChange, SceneChanges
from tasks.domain import Job
from tasks.embedding.embedding_file import EmbeddingCache
from tasks.embedding.pack_file import pack_key
from tasks.embedding.video import identity_of
from tasks.manifest.shard import split_into_shards
from tasks.manifest.table import open_jobs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from infra.settings import Settings
    from reelabel_engine.protocol import TowersInfo
    from tasks.domain import DescribeSpec

_THREADS = 8
_MS = 1000
_CUT_EVERY = 4  # every so many videos have a cut in their middle
_NOISE = 0.02  # a value of a vector of many


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredVideos:
    """Videos of equal length.

    Attributes:
        root_uri: Their folder.
        count: How many they are.
        seconds: Length of each.
    """

    root_uri: str
    count: int
    seconds: float

    def uri(self, number: int) -> str:
        """Return the URI of a video."""
        return f"{self.root_uri}/clip-{number:07}.mp4"

    def jobs(self) -> Iterator[Job]:
        """Yield a job on each video."""
        for number in range(self.count):
            yield Job(job_id=f"clip-{number:07}", video_uri=self.uri(number), prompt="", choices=())


def write_manifest(videos: StoredVideos, settings: Settings) -> str:
    """Write a manifest of the videos to the store; return its URI."""
    uri = f"{videos.root_uri}/manifest.parquet"
    rows = [(job.job_id, job.video_uri) for job in videos.jobs()]
    sink = io.BytesIO()
    pl.DataFrame(rows, schema=["job_id", "video_uri"], orient="row").write_parquet(sink)
    ObjectStore(settings.store).replace(uri, sink.getvalue())
    return uri


def store_videos(videos: StoredVideos, settings: Settings, *, spec: DescribeSpec, towers: TowersInfo) -> None:
    """Write each video as an object of a few bytes, its embedding file, and its changes of scene."""
    objects = ObjectStore(settings.store)
    assert settings.store.uri is not None
    cache = EmbeddingCache.of(settings.store, objects)
    scenes = SceneFiles.of(settings.store, objects)

    def write(job: Job) -> None:
        number = int(job.job_id.rpartition("-")[2])
        objects.replace(job.video_uri, f"video {number}".encode())
        identity = identity_of(objects.stat(job.video_uri), WHOLE, spec=spec, towers=towers)
        cache.write(identity, made_up(number, videos.seconds, spec=spec, dimensions=towers.dimensions))
        scenes.write(
            made_up_changes(number, videos.seconds),
            identity.key,
            method=spec.scene_method,
            threshold=spec.scene_threshold,
        )

    with ThreadPoolExecutor(_THREADS) as threads:
        for _ in threads.map(write, videos.jobs()):
            pass


def store_outlines(
    videos: StoredVideos, manifest: str, settings: Settings, *, spec: DescribeSpec, towers: TowersInfo
) -> None:
    """Write each video as an object of a few bytes, and for each shard the outlines that an earlier run leaves."""
    objects, store = ObjectStore(settings.store), settings.store
    assert store.uri is not None
    files = OutlineFiles.of(store, objects)
    any_version = ObjectInfo(uri="", size_bytes=0, fingerprint="")
    like = identity_of(any_version, WHOLE, spec=spec, towers=towers)

    def write(uris: Sequence[str]) -> None:
        for uri in uris:
            objects.replace(uri, f"video {_number(uri)}".encode())
        key, known = pack_key([(uri, WHOLE) for uri in uris], like), objects.stat_many(uris)
        kept = files.read(key, method=spec.scene_method, threshold=spec.scene_threshold, dimensions=towers.dimensions)
        for uri in uris:
            identity = identity_of(known.get(uri) or objects.stat(uri), WHOLE, spec=spec, towers=towers)
            kept.add(identity.key, _outline(_number(uri), videos.seconds, spec=spec, dimensions=towers.dimensions))
        files.write(kept)

    with open_jobs(manifest, objects, questions=False) as jobs, ThreadPoolExecutor(_THREADS) as threads:
        for shards in split_into_shards(jobs.parts(), target_jobs=settings.shard.target_jobs):
            uris = shards.rows["video_uri"].to_list()
            ends = [*accumulate(shards.sizes)]
            for _ in threads.map(write, [uris[end - size : end] for size, end in zip(shards.sizes, ends, strict=True)]):
                pass


def _number(uri: str) -> int:
    return int(uri.rpartition("-")[2].removesuffix(".mp4"))


def _outline(number: int, seconds: float, *, spec: DescribeSpec, dimensions: int) -> Outline:
    embeddings, changes = made_up(number, seconds, spec=spec, dimensions=dimensions), made_up_changes(number, seconds)
    chunks = cut_chunks(seconds, chunk_s=spec.seconds_per_chunk)
    return Outline(
        duration_s=seconds,
        frames=len(embeddings.pts_ms),
        note="",
        pooled=pool_chunks(embeddings, chunks),
        changes=changes,
        scenes=scenes_of(changes, embedded_chunks(embeddings, chunks)),
    )


def made_up(number: int, seconds: float, *, spec: DescribeSpec, dimensions: int) -> Embeddings:
    """Return embeddings of one scene, or of two if the video has a cut: a direction, and a little noise a frame."""
    rng = np.random.default_rng(number)
    frames = max(1, round(seconds / spec.seconds_per_chunk * spec.frames_per_chunk))
    scenes = normalize(rng.standard_normal((2, dimensions), np.float32))
    shown = np.arange(frames) * 2 // frames if has_cut(number) else np.zeros(frames, np.int64)
    noise = rng.standard_normal((frames, dimensions), np.float32)
    pts_ms = ((np.arange(frames) + 0.5) * seconds / frames * _MS).astype(np.int64)
    return Embeddings(vectors=normalize(scenes[shown] + _NOISE * noise), pts_ms=pts_ms, duration_s=seconds)


def has_cut(number: int) -> bool:
    """Return whether a video has a cut in its middle."""
    return number % _CUT_EVERY == 0


def made_up_changes(number: int, seconds: float) -> SceneChanges:
    """Return the cut of a video that has one."""
    middle_ms = round(seconds * _MS / 2)
    cut = SceneChange(pts_ms=middle_ms, score=40.0, since_ms=middle_ms - 40)
    return SceneChanges(changes=(cut,) if has_cut(number) else (), method="index and ema")
