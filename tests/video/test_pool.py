import os
import signal
import time

import pytest

from infra.errors import DecoderCrashedError, DecoderTimeoutError, VideoEmptyError
from tasks.domain import Sampling
from tasks.video.limits import Limits
from tasks.video.pool import DecodePool


@pytest.fixture(scope="module")
def pool():
    with DecodePool(processes=1, timeout_s=10, memory_mib=2048) as pool:
        yield pool


def test_a_video_is_decoded_in_a_child(pool, make_clip):
    got = pool.extract(make_clip(), sampling=Sampling(num_frames=4), limits=Limits())

    assert len(got.picks) == 4


def test_a_videos_own_error_crosses_the_boundary(pool, tmp_path):
    path = tmp_path / "empty.mp4"
    path.touch()

    with pytest.raises(VideoEmptyError):
        pool.extract(path, sampling=Sampling(), limits=Limits())


def test_a_killed_child_fails_its_video_alone(pool, make_clip):
    with pytest.raises(DecoderCrashedError, match="died"):
        pool._run(_kill_self)

    assert pool.extract(make_clip(), sampling=Sampling(), limits=Limits()).keyframes_in_file == 4


def test_a_hanging_child_is_ended_and_replaced(make_clip):
    with DecodePool(processes=1, timeout_s=3, memory_mib=2048) as pool:
        with pytest.raises(DecoderTimeoutError, match="3 s"):
            pool._run(time.sleep, 60)

        assert pool.extract(make_clip(), sampling=Sampling(), limits=Limits()).keyframes_in_file == 4


def test_memory_is_limited(pool):
    with pytest.raises(DecoderCrashedError, match="memory_mib"):
        pool._run(bytearray, 4 * 1024**3)


def _kill_self():
    os.kill(os.getpid(), signal.SIGKILL)
