"""A store with embedding files of made vectors, and their catalogue."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

import numpy as np
import polars as pl
import pytest

from infra.settings import StoreSettings
from reelabel.errors import FrameFileError, ObjectMissingError
from reelabel.sampling.options import Sampling
from reelabel.seal import Seal
from reelabel.sources.object_store import ObjectStore
from tasks.description.embeddings import Embeddings, normalize
from tasks.domain import ModelIdentity
from tasks.embedding.vector_file import VectorCache, VectorKey
from tasks.search.catalogue import FILES
from tasks.search.hits import Hits, merge_moments, top_hits
from tasks.search.local_index import LocalIndex
from tasks.search.searcher import Searcher

SEAL = Seal(b"k" * 32)
MODEL = ModelIdentity(name="siglip", fingerprint="abcdef0123")
SIZE = 32


@dataclass
class World:
    """Embedding files in a folder, and the indexes of machines."""

    folder: object
    model: ModelIdentity = MODEL
    size: int = SIZE
    seal: Seal = SEAL
    settings: StoreSettings | None = None
    jobs: list[dict[str, str]] = field(default_factory=list)

    def __post_init__(self):
        self.settings = self.settings or StoreSettings(uri=f"file://{self.folder}/store")
        self.root = self.settings.uri
        self.objects = ObjectStore(self.settings)
        self.cache = VectorCache(objects=self.objects, root_uri=self.root, seal=self.seal)

    def add(self, video, vectors, *, step_ms=1000, **job):
        """Write the embedding file of a video; return its key."""
        vectors = normalize(np.asarray(vectors, np.float32))
        return self.write(video, Embeddings(vectors=vectors, pts_ms=np.arange(len(vectors)) * step_ms), **job)

    def write(self, video, embeddings, *, dataset="films", task=""):
        identity = VectorKey(
            source_uri=f"s3://videos/{video}",
            fingerprint="1",
            sampling=Sampling(),
            model=self.model,
            dimensions=embeddings.vectors.shape[1],
            size_px=64,
            versions={},
        )
        self.cache.write(identity, embeddings)
        self.list(video, identity.key, dataset=dataset, task=task)
        return identity.key

    def list(self, video, key, *, dataset="films", task=""):
        job = {"dataset": dataset, "job_id": f"job-{video}", "task": task}
        self.jobs.append(job | {"key": key, "video_uri": f"s3://videos/{video}", "video": zlib.crc32(video.encode())})

    def add_random(self, count, *, frames=20, seed=0):
        rng = np.random.default_rng(seed)
        return [self.add(f"{seed}-{number}.mp4", rng.normal(size=(frames, self.size))) for number in range(count)]

    def table(self):
        return pl.DataFrame(self.jobs, schema=FILES)

    def index(self, machine="here"):
        return LocalIndex(self.folder / machine, self.model)

    def search(self, query, *, top=5, machine="here", is_whole=True, **options):
        query = normalize(np.asarray(query, np.float32))
        searcher = Searcher(self.table(), self.cache, self.index(machine), is_whole=is_whole)
        return searcher.search(query, top=top, **options)

    def compare_all(self, query, *, top=5):
        """The moments that a comparison of all stored vectors finds, each as file, time and cosine."""
        query = normalize(np.asarray(query, np.float32))
        files, found = self.table(), []
        for number, key in enumerate(files["key"]):
            try:
                embeddings, model = self.cache.read_stored(key)
            except (FrameFileError, ObjectMissingError):
                continue
            if model != self.model:
                continue
            scores = embeddings.vectors @ query
            files_of = np.full(len(scores), number)
            found.append(Hits(scores=scores, files=files_of, pts_ms=embeddings.pts_ms))
        return merge_moments(top_hits(found, 100_000), files["video"].to_numpy(), top=top)

    def paths(self, machine="here"):
        return sorted((self.folder / machine).rglob("*.arrow"))


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)
