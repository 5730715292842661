"""Embedding files are read back as they were written, and never in place of another."""

import json
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
from reelabel.segment import WHOLE, Segment
from reelabel.sources.object_store import ObjectStore
from tasks.description.embeddings import CutCandidate, Cuts, Embeddings, normalize
from tasks.domain import ModelIdentity
from tasks.embedding import vector_file
from tasks.embedding.vector_file import (
    LEAST_VIDEOS,
    MOST_FRAMES,
    ShardVectors,
    VectorCache,
    VectorKey,
    as_read_back,
    decode,
    encode,
)
from tasks.frame_cache.eviction import cached_files, evict
from tasks.frame_cache.orphans import remove_orphans

SEAL = Seal(b"k" * 32)
IDENTITY = VectorKey(
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
    return VectorCache(objects=ObjectStore(StoreSettings(uri=root)), root_uri=root, seal=SEAL)


def encoded(embeddings, identity=IDENTITY):
    return encode({identity.key: embeddings}, identity.facts(), SEAL)


def decoded(data, identity=IDENTITY):
    return decode(data, identity.key, SEAL)[0][identity.key]


def test_vectors_keep_their_direction_and_length():
    embeddings = make_embeddings()

    found = decoded(encoded(embeddings))

    assert (found.vectors.astype(float) * embeddings.vectors).sum(axis=1).min() >= 0.999999
    assert np.linalg.norm(found.vectors, axis=1) == pytest.approx(1, abs=1e-6)
    assert found.pts_ms.tolist() == embeddings.pts_ms.tolist()
    assert (found.duration_s, found.note) == (12.5, "cut short")


@pytest.mark.parametrize("size", [128, 1152])
def test_embeddings_as_read_back_are_what_the_file_gives_and_storing_them_again_changes_nothing(size):
    embeddings = make_embeddings(count=500, size=size)

    stored = as_read_back(embeddings)

    for each in (embeddings, stored):
        assert np.array_equal(decoded(encoded(each)).vectors, stored.vectors)


def test_a_file_is_plain_arrow_and_holds_no_signature():
    data = encoded(make_embeddings())

    schema = pa.ipc.open_file(pa.py_buffer(data)).schema
    assert schema.field("pts_ms").type == pa.int64()
    assert schema.field("vector").type == pa.list_(pa.field("item", pa.float16()), 1152)
    assert b"secret" not in data


@pytest.mark.parametrize("count", [0, 1])
def test_a_video_of_few_frames_has_a_file(count):
    assert decoded(encoded(make_embeddings(count))).vectors.shape == (count, 1152)


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
    ],
    ids=lambda change: next(iter(change)),
)
def test_embeddings_of_something_else_have_another_key_and_are_refused_under_this_one(change):
    other = replace(IDENTITY, **change)
    assert other.key != IDENTITY.key

    with pytest.raises(FrameFileError, match="Signature mismatch"):
        decode(encoded(make_embeddings(), other), IDENTITY.key, SEAL)


def test_embeddings_of_frames_that_an_earlier_version_has_decoded_are_not_found(cache, monkeypatch):
    with monkeypatch.context() as earlier:
        earlier.setattr(cache_key, "_FRAMES_VERSION", "1")
        cache.write(replace(IDENTITY), make_embeddings())

    assert cache.find(replace(IDENTITY)) is None


def test_a_sealed_file_that_lies_about_its_model_is_refused(cache, monkeypatch):
    other = replace(IDENTITY, model=ModelIdentity(name="other"))
    monkeypatch.setitem(other.__dict__, "key", IDENTITY.key)
    cache.write(other, make_embeddings())

    with pytest.raises(FrameFileError, match="does not match the request: model differ"):
        cache.read(IDENTITY)


def test_a_sealed_file_whose_facts_are_nested_too_deeply_is_damaged(monkeypatch):
    facts = IDENTITY.facts()
    with monkeypatch.context() as patched:
        patched.setattr(vector_file.json, "dumps", lambda _facts: "[" * 100_000)
        data = encode({facts["key"]: make_embeddings()}, facts, SEAL)

    with pytest.raises(FrameFileError, match="damaged"):
        decode(data, IDENTITY.key, SEAL)


def test_an_altered_or_truncated_file_is_refused():
    data = encoded(make_embeddings())

    for wrong in (data[:-40], data.replace(data[2000:2004], b"\1\2\3\4", 1), b""):
        with pytest.raises(FrameFileError):
            decode(wrong, IDENTITY.key, SEAL)
    with pytest.raises(FrameFileError, match="another store"):
        decode(data, IDENTITY.key, Seal(b"x" * 32))


def test_vectors_of_another_size_are_not_written(cache):
    with pytest.raises(ValueError, match="vectors of 8 for a model of 1152"):
        cache.write(IDENTITY, make_embeddings(size=8))


def test_a_file_is_written_once_and_a_damaged_one_is_replaced_and_reported(cache, tmp_path):
    embeddings = make_embeddings()
    assert cache.find(IDENTITY) is None
    assert cache.write(IDENTITY, embeddings) == ""
    assert cache.write(IDENTITY, embeddings) == ""

    path = tmp_path / IDENTITY.key
    path.write_bytes(path.read_bytes()[:-9])

    assert cache.find(IDENTITY) is None
    assert "Signature mismatch" in cache.write(IDENTITY, embeddings)
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


NAMES = [f"s3://videos/{number}.mp4" for number in range(LEAST_VIDEOS + 2)]
VIDEOS = [(name, WHOLE) for name in NAMES]
KEY = IDENTITY.of_shard(VIDEOS)
SIZE = 24


def embeddings_of(number, frames=None):
    rng = np.random.default_rng(number)
    count = frames or 1 + number
    return Embeddings(
        vectors=normalize(rng.normal(size=(count, SIZE))),
        pts_ms=np.arange(count, dtype=np.int64) * 100 + number,
        first_ms=40 * number,
        duration_s=number + 0.5,
        note="cut short" if number == 3 else "",
        cuts=[None, Cuts(candidates=None, note="why"), Cuts(candidates=(CutCandidate(80, 40, 30.0, 20.5),))][
            number % 3
        ],
    )


MADE = {name: embeddings_of(number) for number, name in enumerate(NAMES)}


def write_shard(cache, videos=MADE):
    shard = cache.read_shard(KEY)
    for name, embeddings in videos.items():
        shard.put(name, embeddings)
    cache.write_shard(shard)


def test_the_file_of_a_shard_gives_what_the_files_of_its_videos_give(cache):
    write_shard(cache)

    found = cache.read_shard(KEY).found

    assert list(found) == NAMES
    for name, embeddings in found.items():
        alone = decoded(encoded(MADE[name]))
        assert np.array_equal(embeddings.vectors, alone.vectors)
        assert np.array_equal(embeddings.pts_ms, alone.pts_ms)
        assert embeddings.first_ms == alone.first_ms == MADE[name].first_ms
        assert (embeddings.duration_s, embeddings.note) == (alone.duration_s, alone.note)
        assert embeddings.cuts == alone.cuts == MADE[name].cuts


def test_cuts_that_an_earlier_version_has_found_are_not_read(cache, monkeypatch):
    with monkeypatch.context() as earlier:
        earlier.setattr(vector_file, "FINDER_VERSION", 0)
        write_shard(cache)

    assert {each.cuts for each in cache.read_shard(KEY).found.values()} == {None}


def test_the_key_is_of_the_videos_in_any_order_and_of_all_that_they_are_asked_for_by_but_their_versions():
    assert IDENTITY.of_shard(reversed(VIDEOS)) == KEY
    assert replace(IDENTITY, source_uri="any", fingerprint="other").of_shard(VIDEOS) == KEY
    others = [
        IDENTITY.of_shard(VIDEOS[1:]),
        IDENTITY.of_shard([(NAMES[0], Segment(1.0, 2.0)), *VIDEOS[1:]]),
        replace(IDENTITY, model=ModelIdentity(name="siglip", fingerprint="abd")).of_shard(VIDEOS),
        replace(IDENTITY, sampling=Sampling(num_frames=4)).of_shard(VIDEOS),
        replace(IDENTITY, versions={"torch": "3"}).of_shard(VIDEOS),
        replace(IDENTITY, chunk_s=5.0).of_shard(VIDEOS),
    ]
    assert len({KEY, *others}) == len(others) + 1


def altered():
    data = bytearray(encode(MADE, {"key": KEY}, SEAL))
    data[len(data) // 2] ^= 1
    return bytes(data)


def not_finite():
    broken = MADE | {NAMES[2]: replace(MADE[NAMES[2]], vectors=MADE[NAMES[2]].vectors * 1e30)}
    with np.errstate(over="ignore"):
        return encode(broken, {"key": KEY}, SEAL)


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize(
    "spoiled",
    [
        pytest.param(lambda: encode(MADE, {"key": "another"}, SEAL), id="of another name"),
        pytest.param(lambda: encode(MADE, {"key": KEY}, Seal(b"x" * 32)), id="with another key"),
        pytest.param(lambda: encode(MADE, {"key": KEY}, SEAL)[:-20], id="cut"),
        altered,
        not_finite,
    ],
)
def test_the_file_of_a_shard_that_must_not_be_used_counts_as_missing_and_is_written_again(cache, spoiled):
    cache.objects.replace(cache.uri_of(KEY), spoiled())

    assert cache.read_shard(KEY).found == {}
    write_shard(cache)
    assert list(cache.read_shard(KEY).found) == NAMES


def test_a_file_whose_videos_have_other_frames_than_it_is_refused(monkeypatch):
    write = json.dumps
    monkeypatch.setattr(json, "dumps", lambda value: write(value).replace('"frames": 4', '"frames": 5'))

    with pytest.raises(FrameFileError, match="damaged"):
        decode(encode(MADE, {"key": KEY}, SEAL), KEY, SEAL)


def test_few_videos_and_videos_without_room_are_read_alone(cache):
    write_shard(cache, dict(list(MADE.items())[: LEAST_VIDEOS - 1]))
    assert cache.read_shard(KEY).found == {}

    write_shard(cache, {"film": embeddings_of(0, frames=MOST_FRAMES + 1)} | MADE)
    assert list(cache.read_shard(KEY).found) == NAMES


def test_only_what_is_asked_for_is_written_again():
    shard = ShardVectors(KEY, MADE | {"old version": embeddings_of(1)})
    for name in NAMES:
        shard.put(name, MADE[name])
    assert shard.changed() is None

    shard.put("new version", embeddings_of(2))
    assert list(shard.changed()) == [*NAMES, "new version"]
