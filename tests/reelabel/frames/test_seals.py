"""Files in the frame cache that someone else has put there."""

import json
import re
from dataclasses import replace

import pytest

from infra.settings import StoreSettings
from reelabel.errors import FrameFileError
from reelabel.frames.cache import FrameCache
from reelabel.frames.frame_file import read_frames, read_metadata
from reelabel.options import Limits
from reelabel.sampling.options import Sampling
from reelabel.seal import NO_KEY, Seal, embed_seal
from reelabel.sources.object_info import SCHEMA_VERSION, index_key
from reelabel.sources.object_store import ObjectStore
from tasks.frame_cache.extractor import FrameExtractor
from tests.clips import LONG
from tests.frame_files import frame_file_of, reversed_frames
from tests.reelabel.frames.rewrite import rewrite

SEAL = Seal(b"a key of the tests, with 32 bytes.")
KEYS = pytest.mark.parametrize("seal", [SEAL, NO_KEY], ids=["key", "no key"])


@pytest.fixture(params=["folder", "s3"])
def store(request, tmp_path):
    """An object store, and a root on it."""
    if request.param == "folder":
        return ObjectStore(StoreSettings()), f"file://{tmp_path}/store"
    settings = request.getfixturevalue("store_settings")
    return ObjectStore(settings), settings.uri


@pytest.fixture
def open_extractor(store, pool):
    """Return a function that opens an extractor with a seal; all of them share one cache."""
    objects, root = store

    def open_one(seal, **options):
        cache = FrameCache(objects, f"{root}/cache", seal=seal)
        settings = {"sampling": Sampling(num_frames=4), "limits": Limits()} | options
        return FrameExtractor(objects=objects, cache=cache, pool=pool, **settings)

    return open_one


def upload(store, path):
    objects, root = store
    objects.replace(f"{root}/{path.name}", path.read_bytes())
    return f"{root}/{path.name}"


def stored(extractor, identity):
    """Return the stored bytes of a frame file."""
    return extractor.objects.read(extractor.cache.uri_of(identity.key))


def put(extractor, identity, data):
    extractor.objects.replace(extractor.cache.uri_of(identity.key), data)


@KEYS
def test_the_frame_file_of_another_clip_is_not_used(open_extractor, store, make_clip, seal):
    extractor = open_extractor(seal)
    red, blue = (upload(store, make_clip(name, frames=frames)) for name, frames in (("red.mp4", 48), ("blue.mp4", 60)))
    first, other = extractor.prepare(red), extractor.prepare(blue)
    whole = stored(extractor, first.identity)
    put(extractor, first.identity, stored(extractor, other.identity))

    with pytest.raises(FrameFileError, match="Signature mismatch"):
        extractor.cache.read(first.identity)
    again = extractor.prepare(red)

    assert not again.was_cached
    assert again.rewritten.startswith("frame file rewritten: Signature mismatch")
    assert again.provenance.decode_note == again.rewritten
    assert read_frames(stored(extractor, first.identity)).unique.tobytes() == read_frames(whole).unique.tobytes()
    assert extractor.prepare(red).was_cached
    assert extractor.prepare(red).rewritten == ""
    assert extractor.prepare(blue).was_cached


OTHERS = {
    "source_uri": "s3://bucket/another.mp4",
    "fingerprint": "another",
    "segment_s": [0.0, 1.0],
    "sampling": Sampling(num_frames=5).to_dict(),
    "decoder": {"av": "0"},
    "key": f"v{SCHEMA_VERSION}/aa/{'a' * 32}.arrow",
    "schema": SCHEMA_VERSION - 1,
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_sealed_file_that_belongs_to_something_else_is_regenerated(open_extractor, store, make_clip, name):
    extractor, uri = open_extractor(SEAL), upload(store, make_clip())
    identity = extractor.prepare(uri).identity
    put(
        extractor,
        identity,
        rewrite(stored(extractor, identity), seal=SEAL, name=identity.key, **{name: OTHERS[name]}),
    )

    again = extractor.prepare(uri)

    assert not again.was_cached
    assert name in again.rewritten
    assert extractor.prepare(uri).was_cached


def forge(data, identity):
    """Change pixels as one does who knows everything but the key."""
    return embed_seal(reversed_frames(data), NO_KEY, identity.key)


def with_copied_seal(data, identity):
    """Change pixels, and keep the seal."""
    forged = forge(data, identity)
    found, theirs = (each[each.find(b"\0sealed\0") + 16 :][:72] for each in (data, forged))
    return forged.replace(theirs, found)


@pytest.mark.parametrize("alter", [forge, with_copied_seal])
def test_a_forged_file_is_regenerated_if_there_is_a_key(open_extractor, store, make_clip, alter):
    extractor, uri = open_extractor(SEAL), upload(store, make_clip())
    identity = extractor.prepare(uri).identity
    whole = stored(extractor, identity)
    put(extractor, identity, alter(whole, identity))

    again = extractor.prepare(uri)

    assert "frame file rewritten" in again.rewritten
    assert read_frames(stored(extractor, identity)).unique.tobytes() == read_frames(whole).unique.tobytes()


def test_without_a_key_writers_to_the_store_can_forge_a_file(open_extractor, store, make_clip):
    extractor, uri = open_extractor(NO_KEY), upload(store, make_clip())
    identity = extractor.prepare(uri).identity
    put(extractor, identity, forge(stored(extractor, identity), identity))

    assert extractor.prepare(uri).was_cached


@KEYS
@pytest.mark.parametrize("length", [0, 10, 1000, -1])
def test_a_truncated_file_is_regenerated(open_extractor, store, make_clip, seal, length):
    extractor, uri = open_extractor(seal), upload(store, make_clip())
    identity = extractor.prepare(uri).identity
    put(extractor, identity, stored(extractor, identity)[:length])

    assert re.search("damaged|corrupted", extractor.prepare(uri).rewritten)
    assert extractor.prepare(uri).was_cached


@pytest.mark.parametrize(("before", "after"), [(NO_KEY, SEAL), (SEAL, NO_KEY), (SEAL, Seal(b"another" * 5))])
def test_after_a_change_of_key_every_file_is_regenerated_once(open_extractor, store, make_clip, before, after):
    uri = upload(store, make_clip())
    open_extractor(before).prepare(uri)

    rewritten = open_extractor(after).prepare(uri)

    assert "signed with another store.mac_key" in rewritten.rewritten
    assert open_extractor(after).prepare(uri).was_cached


@KEYS
@pytest.mark.parametrize("store", ["s3"], indirect=True)  # videos in folders have no index files
def test_an_index_file_of_another_video_is_regenerated(open_extractor, store, make_clip, seal):
    extractor = open_extractor(seal, ranges_min_bytes=1)
    first, other = (
        upload(store, make_clip(name, **LONG | {"b_frames": 0, "frames": frames}))
        for name, frames in (("a.mp4", 240), ("b.mp4", 264))
    )
    keys = []
    for uri in (first, other):
        prepared = extractor.prepare(uri)
        keys.append(index_key(source_uri=uri, fingerprint=prepared.identity.fingerprint))
    index = extractor.cache.find_index(keys[0])
    extractor.objects.replace(extractor.cache.uri_of(keys[0]), extractor.objects.read(extractor.cache.uri_of(keys[1])))

    assert extractor.cache.find_index(keys[0]) == ()
    again = replace(extractor, sampling=Sampling(num_frames=2)).prepare(first)

    assert again.rewritten.startswith("index file rewritten: Signature mismatch")
    assert extractor.cache.find_index(keys[0]) == index


def test_a_frame_file_contains_no_url_signature_and_no_inline_video(keyframes):
    uri = "https://user:password@example.com/v.mp4?signature=secret"

    data = frame_file_of(keyframes, source_uri=uri)

    assert read_frames(data).source_uri == "https://example.com/v.mp4?..."
    assert not re.search("secret|password", json.dumps(read_metadata(data)))
