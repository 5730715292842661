"""Packs give what the files of single videos give, and nothing that was altered or is of something else."""

from dataclasses import replace

import numpy as np
import pytest

from infra.settings import StoreSettings
from reelabel.sampling.options import Sampling
from reelabel.seal import Seal
from reelabel.segment import WHOLE, Segment
from reelabel.sources.object_store import ObjectStore
from tasks.description.embeddings import Embeddings, normalize
from tasks.description.kept import Kept
from tasks.domain import ModelIdentity
from tasks.embedding.embedding_file import EmbeddingIdentity, decode_embeddings, encode_embeddings
from tasks.embedding.pack_file import LEAST_VIDEOS, MOST_FRAMES, PackFiles, decode_pack, encode_pack, pack_key

SEAL = Seal(b"k" * 32)
SIZE = 24
LIKE = EmbeddingIdentity(
    source_uri="",
    fingerprint="",
    sampling=Sampling(),
    model=ModelIdentity(name="siglip", fingerprint="abc"),
    dimensions=SIZE,
    size_px=56,
    versions={"torch": "2"},
    chunk_s=10.0,
)
NAMES = [f"s3://videos/{number}.mp4" for number in range(LEAST_VIDEOS + 2)]
VIDEOS = [(name, WHOLE) for name in NAMES]
KEY = pack_key(VIDEOS, LIKE)


def embeddings_of(number, frames=None):
    rng = np.random.default_rng(number)
    count = frames or 1 + number
    return Embeddings(
        vectors=normalize(rng.normal(size=(count, SIZE))),
        pts_ms=np.arange(count, dtype=np.int64) * 100 + number,
        first_ms=40 * number,
        duration_s=number + 0.5,
        note="cut short" if number == 3 else "",
    )


MADE = {name: embeddings_of(number) for number, name in enumerate(NAMES)}


@pytest.fixture
def packs(tmp_path):
    return PackFiles(objects=ObjectStore(StoreSettings()), root_uri=f"file://{tmp_path}", seal=SEAL)


def written(packs, videos=MADE):
    kept = packs.read(KEY, dimensions=SIZE)
    for name, embeddings in videos.items():
        kept.add(name, embeddings)
    packs.write(kept)
    return kept


def test_a_pack_gives_what_the_files_of_its_videos_give(packs):
    written(packs)

    found = packs.read(KEY, dimensions=SIZE).found

    assert list(found) == NAMES
    for name, embeddings in found.items():
        alone = decode_embeddings(encode_embeddings(MADE[name], LIKE, SEAL), LIKE, SEAL)
        assert np.array_equal(embeddings.vectors, alone.vectors)
        assert np.array_equal(embeddings.pts_ms, alone.pts_ms)
        assert embeddings.first_ms == alone.first_ms == MADE[name].first_ms
        assert (embeddings.duration_s, embeddings.note) == (alone.duration_s, alone.note)


def test_the_key_is_of_the_videos_in_any_order_and_of_all_that_they_are_asked_for_by_but_their_versions():
    assert pack_key(reversed(VIDEOS), LIKE) == KEY
    assert pack_key(VIDEOS, replace(LIKE, source_uri="any", fingerprint="other")) == KEY
    others = [
        pack_key(VIDEOS[1:], LIKE),
        pack_key([(NAMES[0], Segment(1.0, 2.0)), *VIDEOS[1:]], LIKE),
        pack_key(VIDEOS, replace(LIKE, model=ModelIdentity(name="siglip", fingerprint="abd"))),
        pack_key(VIDEOS, replace(LIKE, sampling=Sampling(num_frames=4))),
        pack_key(VIDEOS, replace(LIKE, versions={"torch": "3"})),
        pack_key(VIDEOS, replace(LIKE, chunk_s=5.0)),
    ]
    assert len({KEY, *others}) == len(others) + 1


def contradictory(packs):
    data = encode_pack(MADE).replace(b'"frames": 4', b'"frames": 5')
    packs.objects.replace(f"{packs.root_uri}/{KEY}", SEAL.wrap(KEY, data))


def of_another_name(packs):
    packs.objects.replace(f"{packs.root_uri}/{KEY}", SEAL.wrap("another", encode_pack(MADE)))


def with_another_key(packs):
    packs.objects.replace(f"{packs.root_uri}/{KEY}", Seal(b"x" * 32).wrap(KEY, encode_pack(MADE)))


def altered(packs):
    uri = f"{packs.root_uri}/{KEY}"
    data = bytearray(packs.objects.read(uri))
    data[len(data) // 2] ^= 1
    packs.objects.replace(uri, bytes(data))


def cut(packs):
    uri = f"{packs.root_uri}/{KEY}"
    packs.objects.replace(uri, packs.objects.read(uri)[:-20])


def not_finite(packs):
    broken = MADE | {NAMES[2]: replace(MADE[NAMES[2]], vectors=MADE[NAMES[2]].vectors * 1e30)}
    with np.errstate(over="ignore"):
        packs.objects.replace(f"{packs.root_uri}/{KEY}", SEAL.wrap(KEY, encode_pack(broken)))


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("spoil", [contradictory, of_another_name, with_another_key, altered, cut, not_finite])
def test_a_pack_that_must_not_be_used_counts_as_missing_and_is_written_again(packs, spoil):
    written(packs)
    spoil(packs)

    assert packs.read(KEY, dimensions=SIZE).found == {}
    written(packs)
    assert list(packs.read(KEY, dimensions=SIZE).found) == NAMES


def test_a_pack_of_another_size_is_refused():
    data = memoryview(encode_pack(MADE))

    with pytest.raises(ValueError, match="reshape"):
        decode_pack(data, dimensions=SIZE - 1)


def test_few_videos_and_videos_without_room_are_read_alone(packs):
    assert written(packs, dict(list(MADE.items())[: LEAST_VIDEOS - 1])).changed()
    assert packs.read(KEY, dimensions=SIZE).found == {}

    written(packs, {"film": embeddings_of(0, frames=MOST_FRAMES + 1)} | MADE)
    assert list(packs.read(KEY, dimensions=SIZE).found) == NAMES


def test_only_what_is_asked_for_is_written_again():
    kept = Kept("key", {"old version": 1, "same": 2})

    assert (kept.find("same"), kept.find("new version")) == (2, None)
    assert kept.changed() is None
    kept.add("new version", 3)
    assert kept.changed() == {"same": 2, "new version": 3}
