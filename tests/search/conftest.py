"""A store with embedding files of made vectors, and their catalogue."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

import numpy as np
import polars as pl
import pytest

from infra.settings import StoreSettings
from reelabel.sampling.options import Sampling
from reelabel.seal import Seal
from reelabel.sources.object_store import ObjectStore
from tasks.description.embeddings import Embeddings, normalize
from tasks.domain import ModelIdentity
from tasks.embedding.embedding_file import EmbeddingCache, EmbeddingIdentity
from tasks.frame_cache.sealed_files import SealedFiles
from tasks.search import build, fragment, opened_index
from tasks.search.build import update_index
from tasks.search.catalogue import FILES, VectorSpace
from tasks.search.index_store import IndexStore
from tasks.search.searcher import Searcher

SEAL = Seal(b"k" * 32)
MODEL = ModelIdentity(name="siglip", fingerprint="abcdef0123")
SIZE = 32


@dataclass
class World:
    """Embedding files in a folder, and the index of their space."""

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
        self.cache = EmbeddingCache(objects=self.objects, root_uri=self.root, seal=self.seal)
        self.space = VectorSpace(model=self.model, dimensions=self.size)

    def add(self, video, vectors, *, step_ms=1000, **job):
        """Write the embedding file of a video; return its key."""
        vectors = normalize(np.asarray(vectors, np.float32))
        return self.write(video, Embeddings(vectors=vectors, pts_ms=np.arange(len(vectors)) * step_ms), **job)

    def write(self, video, embeddings, *, dataset="films", task=""):
        identity = EmbeddingIdentity(
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

    def store(self, machine="here"):
        files = SealedFiles(objects=self.objects, root_uri=self.root, seal=self.seal)
        return IndexStore(files, self.space, folder=self.folder / machine)

    def update(self, machine="here"):
        return update_index(self.store(machine), self.cache, self.table()["key"].unique(maintain_order=True))

    def search(self, query, *, top=5, exact=False, machine="here", **options):
        query = normalize(np.asarray(query, np.float32))
        with Searcher(self.table(), self.cache, self.store(machine), exact=exact) as searcher:
            return searcher.search(query, top=top, **options)

    def path(self, pattern):
        """The only file of the index that matches."""
        (found,) = (self.folder / "store" / "search" / self.space.key).glob(pattern)
        return found

    def paths(self, pattern="*"):
        return sorted((self.folder / "store" / "search" / self.space.key).glob(pattern))


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


@pytest.fixture
def small_index(monkeypatch):
    """Fragments of 100 vectors, and searches that compare 120 of them."""
    monkeypatch.setattr(fragment, "_FRAGMENT_BYTES", 2 * 100 * SIZE)
    monkeypatch.setattr(build, "ROWS_COMPARED", 120)
    monkeypatch.setattr(opened_index, "ROWS_COMPARED", 120)
