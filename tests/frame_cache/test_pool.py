import time
from pathlib import Path

from infra.settings import Settings
from reelabel.sampling.options import Sampling
from tasks.frame_cache.pool import decode_pool, video_limits
from tests.clips import make_clip

__all__ = ["make_clip"]


def seccomp_of(pid):
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return [line for line in lines if line.startswith("Seccomp")]


def the_process(pool):
    """Return the id of a pool's only process, once it is started."""
    deadline_s = time.monotonic() + 30
    while not (ids := pool.process_ids) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    return ids[0]


def test_the_settings_decide_the_lifetime_and_the_sandbox_of_a_process(make_clip):
    settings = Settings(extract={"videos_per_process": 1, "sandbox": "off", "memory_mib": 1024})
    clip, seen = make_clip(), []
    with decode_pool(settings, processes=1) as pool:
        for _ in range(2):
            seen.append(the_process(pool))
            pool.extract(clip, sampling=Sampling(), limits=video_limits(settings))
        theirs, ours = (seccomp_of(pid) for pid in (the_process(pool), "self"))

    assert seen[0] != seen[1]
    assert theirs == ours
