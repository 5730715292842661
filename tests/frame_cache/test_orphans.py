import tarfile

import numpy as np
import pytest

from infra.settings import StoreSettings
from reelabel.frames.cache_key import FrameIdentity
from reelabel.sampling.options import Sampling
from reelabel.sources.object_info import index_key
from reelabel.sources.object_store import ObjectStore
from tasks.frame_cache.eviction import cached_files
from tasks.frame_cache.orphans import remove_orphans
from tests.frame_files import frame_file_of
from tests.reelabel.sources.s3_elsewhere import serving_elsewhere

STORE = ObjectStore(StoreSettings())


@pytest.fixture
def cache(tmp_path, keyframes):
    """Write frame files of an unchanged, a replaced, a missing and a web video."""
    root = f"file://{tmp_path}/cache"
    videos = {name: f"file://{tmp_path}/{name}.mp4" for name in ("stands", "replaced", "gone")}
    for uri in videos.values():
        STORE.replace(uri, b"a video")
    videos["web"] = "https://example.invalid/web.mp4"
    for name, uri in videos.items():
        fingerprint = STORE.stat(uri).fingerprint if name != "web" else "etag"
        made_of = {"source_uri": uri, "fingerprint": fingerprint, "sampling": Sampling()}
        STORE.replace(f"{root}/{FrameIdentity(**made_of).key}", frame_file_of(keyframes, **made_of))
    STORE.replace(f"{root}/{index_key(source_uri=videos['gone'], fingerprint='f')}", b"an index")
    STORE.replace(videos["replaced"], b"another video")
    STORE.remove(videos["gone"])
    return root


def test_frame_files_of_missing_and_replaced_videos_are_removed(cache):
    before = len(list(cached_files(STORE, cache)))

    would = remove_orphans(STORE, cache, videos=STORE, dry_run=True)
    assert len(list(cached_files(STORE, cache))) == before == 5
    room = remove_orphans(STORE, cache, videos=STORE)

    assert room == would
    assert (room.kept, room.removed) == (3, 2)
    assert room.removed_bytes > 0
    assert len(list(cached_files(STORE, cache))) == 3
    assert remove_orphans(STORE, cache, videos=STORE).removed == 0


def test_the_name_of_a_video_is_found_where_ranges_are_ignored(keyframes):
    with serving_elsewhere(etags=False, ranges=False) as server:
        store, root = ObjectStore(server.settings), server.settings.uri
        made_of = {"source_uri": "s3://bucket/gone.mp4", "fingerprint": "s3:1:one", "sampling": Sampling()}
        store.replace(f"{root}/{FrameIdentity(**made_of).key}", frame_file_of(keyframes, **made_of))

        assert remove_orphans(store, root, videos=store).removed == 1


def test_a_file_without_the_name_of_its_video_stays(cache):
    damaged = next(info for info in cached_files(STORE, cache) if info.uri.endswith(".arrow"))
    STORE.replace(damaged.uri, b"ARROW1\0\0 but no more")

    remove_orphans(STORE, cache, videos=STORE)

    assert STORE.stat(damaged.uri)


def test_the_name_of_a_video_is_found_behind_a_long_keyframe_table(tmp_path, keyframes):
    root, uri = f"file://{tmp_path}/cache", f"file://{tmp_path}/long.mp4"
    STORE.replace(uri, b"a video")
    made_of = {"source_uri": uri, "fingerprint": "another", "sampling": Sampling()}
    many = keyframes.with_selection(keyframe_ms=np.arange(20_000) * 1000)
    STORE.replace(f"{root}/{FrameIdentity(**made_of).key}", frame_file_of(many, **made_of))

    assert remove_orphans(STORE, root, videos=STORE).removed == 1


def test_frame_files_stay_if_the_store_denies_access_to_their_video(objects, store_settings, keyframes):
    root = f"{store_settings.uri}/cache"
    gone = f"{store_settings.uri}/gone.mp4"
    for uri in ("s3://no-such-bucket/clip.mp4", gone):
        made_of = {"source_uri": uri, "fingerprint": "f", "sampling": Sampling()}
        objects.replace(f"{root}/{FrameIdentity(**made_of).key}", frame_file_of(keyframes, **made_of))

    room = remove_orphans(objects, root, videos=objects)

    assert (room.kept, room.removed) == (1, 1)


@pytest.mark.parametrize("is_empty", [True, False], ids=["not mounted", "on another machine"])
def test_frame_files_of_local_videos_stay_where_their_folder_cannot_be_seen(tmp_path, keyframes, is_empty):
    root, disk = f"file://{tmp_path}/cache", tmp_path / "disk"
    if is_empty:
        disk.mkdir()
    made_of = {"source_uri": str(disk / "clip.mp4"), "fingerprint": "f", "sampling": Sampling()}
    STORE.replace(f"{root}/{FrameIdentity(**made_of).key}", frame_file_of(keyframes, **made_of))

    assert remove_orphans(STORE, root, videos=STORE).removed == 0
    disk.mkdir(exist_ok=True)
    (disk / "another.mp4").touch()
    assert remove_orphans(STORE, root, videos=STORE).removed == 1


def test_frame_files_of_members_are_removed_if_their_archive_has_none_and_stay_if_it_is_damaged(tmp_path, keyframes):
    root, archive = f"file://{tmp_path}/cache", tmp_path / "a.tar"
    (tmp_path / "v.mp4").write_bytes(b"a video")
    with tarfile.open(archive, "w") as shard:
        shard.add(tmp_path / "v.mp4", "v.mp4")
    uris = [f"file://{archive}#v.mp4", f"file://{archive}#gone.mp4"]
    fingerprint = STORE.stat(uris[0]).fingerprint
    for uri in uris:
        made_of = {"source_uri": uri, "fingerprint": fingerprint, "sampling": Sampling()}
        STORE.replace(f"{root}/{FrameIdentity(**made_of).key}", frame_file_of(keyframes, **made_of))

    assert remove_orphans(STORE, root, videos=STORE).removed == 1
    archive.write_bytes(b"no tar")
    assert remove_orphans(STORE, root, videos=STORE).removed == 0
