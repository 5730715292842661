"""What nobody waits for any more: a video is not decoded to its end, and the pool goes on."""

import threading
import time

import pytest

from reelabel.pool.decode_pool import DecodePool
from reelabel.sampling.options import Sampling
from reelabel.waiting import AbandonedError, working_until
from tests.clips import write_clip


@pytest.fixture(scope="module")
def clips(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clips")
    write_clip(folder / "long.mp4", frames=20_000, gop=20_000, fps=100)
    write_clip(folder / "short.mp4", frames=24, gop=12, fps=12)
    return folder


def test_decoding_ends_soon_after_nobody_waits_for_it(clips):
    over = threading.Event()
    with DecodePool(processes=1) as pool:
        pool.extract(clips / "short.mp4")
        timer = threading.Timer(0.2, over.set)
        timer.start()
        began_s = time.monotonic()
        with pytest.raises(AbandonedError), working_until(over.is_set):
            pool.extract(clips / "long.mp4", sampling=Sampling(sampler="uniform", num_frames=64))
        took_s = time.monotonic() - began_s

        assert len(pool.extract(clips / "short.mp4").images)
    assert took_s < 5
