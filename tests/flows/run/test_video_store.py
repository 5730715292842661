"""Videos have their own keys and buckets, apart from those of frame files."""

import json
from dataclasses import replace

import pytest

from flows.cli.videos.frames import fetch_frames
from infra.processes import free_port
from infra.settings import Settings, StoreSettings
from reelabel.errors import LoginRefusedError, ObjectRefusedError, VideoRefusedError
from reelabel.sampling.options import Sampling
from reelabel.sources.object_store import ObjectStore
from tasks.domain import ModelIdentity, RunSpec
from tasks.frame_cache.orphans import remove_orphans
from tasks.frame_cache.pool import current_fingerprints, open_extractor, video_store
from tests.clips import make_clip
from tests.weed import wait_until_stored, weed

__all__ = ["make_clip"]

SPEC = RunSpec(model=ModelIdentity(name="nobody"), sampling=Sampling(num_frames=2))
ACTIONS = {
    "administrator": ["Admin"],
    "frames": ["Read:frames", "Write:frames", "List:frames"],
    "videos": ["Read:videos", "List:videos"],
}


def login(name, prefix=""):
    return {f"{prefix}access_key_id": name, f"{prefix}secret_access_key": f"secret of {name}"}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """An S3 server: who may write frames has no right to the videos, and the other way round."""
    folder, port = tmp_path_factory.mktemp("s3"), free_port()
    identities = [
        {"name": name, "actions": actions, "credentials": [{"accessKey": name, "secretKey": f"secret of {name}"}]}
        for name, actions in ACTIONS.items()
    ]
    (folder / "s3.json").write_text(json.dumps({"identities": identities}))
    (folder / "data").mkdir()
    arguments = ["server", "-dir=data", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer", "-s3", f"-s3.port={port}"]
    arguments += ["-s3.config=s3.json", "-s3.iam=false", "-s3.port.iceberg=0", "-s3.port.lance=0"]
    reached = {"uri": "s3://frames/cache", "endpoint_url": f"http://127.0.0.1:{port}", "max_attempts": 2}
    with weed([*arguments, "-master.telemetry=false"], folder):
        administrator = ObjectStore(StoreSettings(**reached, **login("administrator")))
        for bucket in ("videos", "frames"):
            wait_until_stored(administrator, f"s3://{bucket}/ready", b"")
        yield reached


@pytest.fixture
def videos(store, make_clip):
    """URIs of ten videos, whose folder is worth listing."""
    administrator, clip = ObjectStore(StoreSettings(**store, **login("administrator"))), make_clip().read_bytes()
    uris = [f"s3://videos/clips/{number}.mp4" for number in range(10)]
    for uri in (*uris, "s3://frames/clip.mp4"):
        administrator.replace(uri, clip)
    return uris


def settings_of(store, **changes):
    return Settings(store=store | login("frames") | changes)


def test_videos_are_read_with_their_own_key_and_frame_files_written_with_the_stores(store, videos, pool):
    settings = settings_of(store, **login("videos", "video_"))
    extractor = open_extractor(settings, pool, SPEC.sampling, keep_bytes=0)

    extractor.check_stores(videos)
    known = extractor.objects.stat_many(videos)
    first, again = (extractor.prepare(uri, known[uri]) for uri in (videos[0], videos[0]))
    assert (set(known), first.was_cached, again.was_cached) == (set(videos), False, True)
    assert extractor.cache.find(first.identity).shape[0] == 2
    assert fetch_frames(videos[1], settings, SPEC.sampling).images.shape[0] == 2
    assert current_fingerprints(video_store(settings), videos[:2]) == [known[uri].fingerprint for uri in videos[:2]]
    assert remove_orphans(ObjectStore(settings.store), "s3://frames/cache", videos=video_store(settings)).removed == 0

    for objects, uri in ((video_store(settings), "s3://videos/new"), (video_store(settings), "s3://frames/new")):
        with pytest.raises(ObjectRefusedError, match="denies access"):
            objects.replace(uri, b"")
    with pytest.raises(ObjectRefusedError, match="denies access"):
        ObjectStore(settings.store).read(videos[0])


def test_without_a_key_for_videos_the_stores_key_needs_both_rights(store, videos, pool):
    extractor = open_extractor(settings_of(store), pool, SPEC.sampling, keep_bytes=0)

    with pytest.raises(VideoRefusedError, match=r"denies access.*store\.access_key_id.*video_access_key_id"):
        extractor.prepare(videos[0])


@pytest.mark.parametrize(
    ("key", "secret", "code"),
    [("nobody", "a secret", "InvalidAccessKeyId"), ("videos", "an old secret", "SignatureDoesNotMatch")],
)
def test_a_login_that_is_refused_is_no_fault_of_a_video(store, videos, pool, key, secret, code):
    settings = settings_of(store, video_access_key_id=key, video_secret_access_key=secret)
    extractor = open_extractor(settings, pool, SPEC.sampling, keep_bytes=0)

    assert extractor.objects.stat_many(videos) == {}
    with pytest.raises(LoginRefusedError, match=rf"denies access to s3://videos/.*\({code}\).*video_access_key_id"):
        extractor.prepare(videos[0])


def test_only_listed_buckets_are_read(store, videos, pool):
    settings = settings_of(store, read_buckets=["videos"], **login("administrator"))
    extractor = open_extractor(settings, pool, SPEC.sampling, keep_bytes=0)
    unlisted = "s3://frames/clip.mp4"

    assert set(
        extractor.objects.stat_many([*videos, unlisted, *(f"s3://frames/clips/{number}" for number in range(9))])
    ) == set(videos)
    assert extractor.prepare(videos[2]).provenance.frames_used == 2
    with pytest.raises(VideoRefusedError, match=rf"{unlisted}.* frames is not in store\.read_buckets; add it"):
        extractor.prepare(unlisted)
    info = replace(extractor.objects.stat_many(videos)[videos[0]], uri=unlisted)
    with pytest.raises(VideoRefusedError, match=r"store\.read_buckets"):
        extractor.prepare(unlisted, info)


def test_keys_for_videos_come_in_pairs():
    with pytest.raises(ValueError, match="must be set together"):
        StoreSettings(video_access_key_id="key")
