from pathlib import Path

import pytest

import reelabel
from infra.settings import Settings
from reelabel.errors import VideoRefusedError, VideoTooLargeError
from reelabel.sampling.options import Sampling
from reelabel.sources.opened import stat_video
from tasks.frame_cache.pool import (
    decode_pool,
    open_extractor,
    uncached_reader,
    video_limits,
    video_store,
)
from tests.clips import make_clip
from tests.frame_files import encoding_of
from tests.only_child import only_child

__all__ = ["make_clip"]

SMALL = {"max_video_bytes": 1024}


def seccomp_of(pid):
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return [line for line in lines if line.startswith("Seccomp")]


def test_the_settings_decide_the_lifetime_and_the_sandbox_of_a_process(make_clip):
    settings = Settings(extract={"videos_per_process": 1, "sandbox": "off", "memory_mib": 1024})
    clip, seen = make_clip(), []
    with decode_pool(settings, processes=1, ahead=True) as pool:
        for _ in range(2):
            seen.append(only_child(pool))
            pool.extract(clip, sampling=Sampling(), limits=video_limits(settings))
        theirs, ours = (seccomp_of(pid) for pid in (only_child(pool), "self"))

    assert len(set(seen)) == 2
    assert theirs == ours


def test_the_limits_of_a_video_are_those_of_the_settings():
    limits = video_limits(Settings(extract={"max_video_bytes": 7_000_000, "max_duration_s": 9}))

    assert (limits.max_video_bytes, limits.max_duration_s) == (7_000_000, 9)


def test_an_extractor_has_the_store_the_limits_and_the_encoding_of_the_settings(pool, make_clip, tmp_path):
    clip, sampling = str(make_clip()), Sampling(num_frames=2)
    store = {"uri": f"file://{tmp_path}/cache", "encoding": "raw"}
    settings, small = Settings(store=store), Settings(store=store, extract=SMALL)
    extractor = open_extractor(settings, pool, sampling, keep_bytes=0)

    assert extractor.prepare(clip).provenance.frames_used == 2
    assert open_extractor(settings, pool, sampling, keep_bytes=0).prepare(clip).was_cached
    assert encoding_of(extractor.cache.read(extractor.prepare(clip).identity)) == "raw"
    with pytest.raises(VideoTooLargeError):
        open_extractor(small, pool, Sampling(num_frames=3), keep_bytes=0).prepare(clip)
    restricted = Settings(store=store, extract={"allow_roots": [str(tmp_path / "allowed")]})
    with pytest.raises(VideoRefusedError):
        open_extractor(restricted, pool, sampling, keep_bytes=0).prepare(clip)
    with pytest.raises(VideoRefusedError), reelabel.open(clip, pool=pool, store=video_store(restricted)):
        pass


def test_a_reader_without_a_cache_keeps_nothing(pool, make_clip, tmp_path):
    clip, settings = str(make_clip()), Settings(store={"uri": f"file://{tmp_path}/cache"})
    reader = uncached_reader(settings, pool)

    assert len(reader.fetch(stat_video(reader.objects, clip), Sampling(num_frames=2)).frames) == 2
    assert not (tmp_path / "cache").exists()
    with pytest.raises(VideoTooLargeError):
        uncached_reader(Settings(extract=SMALL), pool).fetch(stat_video(reader.objects, clip), Sampling())
