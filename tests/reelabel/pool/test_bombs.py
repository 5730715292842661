import time
from functools import cache

import pytest

from benchmarks.media.matrix import Cell
from reelabel.errors import VideoError
from reelabel.options import Limits
from reelabel.pool.decode_pool import DecodePool
from reelabel.sampling.options import Sampling
from tests.bombs import BOMBS

TIMEOUT_S = 4
CPU_S = 1  # far more than a good file takes
# A child is given three seconds to end by itself, and a machine may be busy.
PATIENCE_S = TIMEOUT_S + 10
SHOWN = "shown"
ENDS = {
    "a claim of 30000x30000": {"video_too_large"},
    "a flat stream of 16K pictures": {"video_too_large"},
    "a flat stream within the pixel limit": {"video_too_large", "decoder_timeout"},
    "a million tiny pictures": {SHOWN, "video_too_large", "decoder_timeout"},
    "an index of 2,147,483,647 entries": {"no_frames", "video_too_large", "video_unreadable"},
    "frames that last for days": {"video_too_large"},
    "clusters that are days apart": {"video_too_large"},
    "frames before zero and a year later": {"video_too_large"},
    "a frame every four months": {"video_too_large"},
}


@pytest.fixture(scope="module")
def pool():
    with DecodePool(processes=1, timeout_s=TIMEOUT_S, cpu_s=CPU_S, memory_mib=2048) as pool:
        yield pool


@cache
def bomb_of(name):
    return BOMBS[name]()


def end_of(pool, path):
    try:
        pool.extract(path, sampling=Sampling(), limits=Limits())
    except VideoError as error:
        return error.code
    return SHOWN


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_stays_within_its_limits_and_the_pool_survives(pool, name, tmp_path):
    bomb, good = tmp_path / "bomb", tmp_path / "good"
    bomb.write_bytes(bomb_of(name))
    good.write_bytes(Cell("mp4", "h264").make())
    started = time.perf_counter()

    end = end_of(pool, bomb)

    assert end in ENDS[name]
    assert time.perf_counter() - started < PATIENCE_S
    assert end_of(pool, good) == SHOWN


def test_bombs_are_small_files():
    assert max(len(bomb_of(name)) for name in BOMBS) < 5_000_000
