"""Embedding files are read back as they were written, and never in place of another."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest

from infra.settings import StoreSettings
from reelabel.errors import FrameFileError
from reelabel.frames import cache_key
from reelabel.sampling.options import Sampling
from reelabel.seal import Seal
from reelabel.segment import Segment
from reelabel.sources.object_store import ObjectStore
from tasks.description.embeddings import Embeddings, normalize
from tasks.domain import ModelIdentity
from tasks.embedding.embedding_file import (
    EmbeddingCache,
    EmbeddingIdentity,
    as_read_back,
    decode_embeddings,
    encode_embeddings,
)
from tasks.frame_cache.eviction import cached_files, evict
from tasks.frame_cache.orphans import remove_orphans

SEAL = Seal(b"k" * 32)
IDENTITY = EmbeddingIdentity(
    source_uri="https://videos.example/a.mp4?signature=secret",
    fingerprint="etag-1",
    sampling=Sampling(),
    model=ModelIdentity(name="siglip", fingerprint="abc"),
    dimensions=1152,
    size_px=384,
    versions={"torch": "2"},
    chunk_s=10.0,
)


def make_embeddings(count=20, size=1152):
    rng = np.random.default_rng(0)
    vectors, pts_ms = normalize(rng.normal(size=(count, size))), np.arange(count, dtype=np.int64) * 625
    return Embeddings(vectors=vectors, pts_ms=pts_ms, duration_s=12.5, note="cut short")


@pytest.fixture
def cache(tmp_path):
    root = f"file://{tmp_path}"
    return EmbeddingCache(objects=ObjectStore(StoreSettings(uri=root)), root_uri=root, seal=SEAL)


@pytest.mark.parametrize(("precision", "cosine"), [("float32", 1 - 1e-7), ("float16", 0.999999)])
def test_vectors_keep_their_direction_and_length(precision, cosine):
    identity, embeddings = replace(IDENTITY, precision=precision), make_embeddings()

    found = decode_embeddings(encode_embeddings(embeddings, identity, SEAL), identity, SEAL)

    assert (found.vectors.astype(float) * embeddings.vectors).sum(axis=1).min() >= cosine
    assert np.linalg.norm(found.vectors, axis=1) == pytest.approx(1, abs=1e-6)
    assert found.pts_ms.tolist() == embeddings.pts_ms.tolist()
    assert (found.duration_s, found.note) == (12.5, "cut short")


@pytest.mark.parametrize("size", [128, 1152])
def test_embeddings_as_read_back_are_what_the_file_gives_and_storing_them_again_changes_nothing(size):
    identity, embeddings = replace(IDENTITY, dimensions=size), make_embeddings(count=500, size=size)

    stored = as_read_back(embeddings, "float16")

    for each in (embeddings, stored):
        found = decode_embeddings(encode_embeddings(each, identity, SEAL), identity, SEAL)
        assert np.array_equal(found.vectors, stored.vectors)


def test_half_precision_takes_half_the_bytes():
    half, full = (
        len(encode_embeddings(make_embeddings(200), replace(IDENTITY, precision=precision)))
        for precision in ("float16", "float32")
    )

    assert half < 0.52 * full


def test_a_file_is_plain_arrow_and_holds_no_signature():
    data = encode_embeddings(make_embeddings(), IDENTITY, SEAL)

    schema = pa.ipc.open_file(pa.py_buffer(data)).schema
    assert schema.field("pts_ms").type == pa.int64()
    assert schema.field("vector").type == pa.list_(pa.field("item", pa.float16()), 1152)
    assert b"secret" not in data


@pytest.mark.parametrize("count", [0, 1])
def test_a_video_of_few_frames_has_a_file(count):
    embeddings = make_embeddings(count)

    found = decode_embeddings(encode_embeddings(embeddings, IDENTITY), IDENTITY)

    assert found.vectors.shape == (count, 1152)


@pytest.mark.parametrize(
    "change",
    [
        {"source_uri": "https://videos.example/b.mp4"},
        {"fingerprint": "etag-2"},
        {"segment": Segment(1.0, 2.0)},
        {"sampling": Sampling(num_frames=8)},
        {"model": ModelIdentity(name="siglip", fingerprint="def")},
        {"size_px": 224},
        {"versions": {"torch": "3"}},
        {"chunk_s": 60.0},
        {"precision": "float32"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_embeddings_of_something_else_have_another_key_and_are_refused_under_this_one(change):
    other = replace(IDENTITY, **change)
    assert other.key != IDENTITY.key

    data = encode_embeddings(make_embeddings(), other, SEAL)
    with pytest.raises(FrameFileError, match="Seal mismatch"):
        decode_embeddings(data, IDENTITY, SEAL)


def test_embeddings_of_frames_that_an_earlier_version_has_decoded_are_not_found(cache, monkeypatch):
    with monkeypatch.context() as earlier:
        earlier.setattr(cache_key, "_FRAMES_VERSION", "1")
        cache.write(replace(IDENTITY), make_embeddings())

    assert cache.find(replace(IDENTITY)) is None


def test_a_sealed_file_that_lies_about_its_model_is_refused(monkeypatch):
    other = replace(IDENTITY, model=ModelIdentity(name="other"))
    monkeypatch.setitem(other.__dict__, "key", IDENTITY.key)

    with pytest.raises(FrameFileError, match="made for something else: model differ"):
        decode_embeddings(encode_embeddings(make_embeddings(), other, SEAL), IDENTITY, SEAL)


def test_an_altered_or_truncated_file_is_refused():
    data = encode_embeddings(make_embeddings(), IDENTITY, SEAL)

    for wrong in (data[:-40], data.replace(data[2000:2004], b"\1\2\3\4", 1), b""):
        with pytest.raises(FrameFileError):
            decode_embeddings(wrong, IDENTITY, SEAL)
    with pytest.raises(FrameFileError, match="another store"):
        decode_embeddings(data, IDENTITY, Seal(b"x" * 32))


def test_vectors_of_another_size_are_not_written():
    with pytest.raises(ValueError, match="vectors of 8 for a model of 1152"):
        encode_embeddings(make_embeddings(size=8), IDENTITY)


def test_a_file_is_written_once_and_a_damaged_one_is_replaced_and_told(cache, tmp_path):
    embeddings = make_embeddings()
    assert cache.find(IDENTITY) is None
    assert cache.write(IDENTITY, embeddings) == ""
    assert cache.write(IDENTITY, embeddings) == ""

    path = tmp_path / IDENTITY.key
    path.write_bytes(path.read_bytes()[:-9])

    assert cache.find(IDENTITY) is None
    assert "Seal mismatch" in cache.write(IDENTITY, embeddings)
    assert cache.find(IDENTITY).vectors.shape == (20, 1152)


def test_eviction_removes_embedding_files_as_it_removes_frame_files(cache, tmp_path):
    cache.write(IDENTITY, make_embeddings())
    root, objects = f"file://{tmp_path}", ObjectStore(StoreSettings(uri=f"file://{tmp_path}"))
    assert [info.uri.endswith(IDENTITY.key) for info in cached_files(objects, root)] == [True]

    later = datetime.now(UTC) + timedelta(hours=1)
    assert evict(objects, root, written_before=later).removed == 1
    assert cache.find(IDENTITY) is None


def test_embeddings_of_a_video_that_is_gone_are_orphans(cache, tmp_path):
    video = tmp_path / "a.mp4"
    video.write_bytes(b"video")
    objects = ObjectStore(StoreSettings(uri=f"file://{tmp_path}"))
    identity = replace(IDENTITY, source_uri=str(video), fingerprint=objects.stat(str(video)).fingerprint)
    cache.write(identity, make_embeddings())

    assert remove_orphans(objects, f"file://{tmp_path}", videos=objects).removed == 0
    video.unlink()
    assert remove_orphans(objects, f"file://{tmp_path}", videos=objects).removed == 1
