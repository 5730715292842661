from pathlib import Path

from infra.settings import Settings
from reelabel.sampling.options import Sampling
from tasks.frame_cache.pool import decode_pool, video_limits
from tests.clips import make_clip
from tests.only_child import only_child

__all__ = ["make_clip"]


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
