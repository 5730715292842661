import math
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from infra.settings import StoreSettings
from reelabel.errors import DecoderCrashedError, DecoderTimeoutError, VideoEmptyError
from reelabel.frames.fetch import RemoteVideo
from reelabel.limits import Limits
from reelabel.pool import decode_pool as pool_module
from reelabel.pool.decode_pool import DecodePool
from reelabel.sampling.options import Sampling
from reelabel.sources.object_store import ObjectStore


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


def test_children_outlive_the_thread_that_started_them():
    with DecodePool(processes=1, timeout_s=10, memory_mib=2048) as pool:
        children = []
        for _ in range(2):
            thread = threading.Thread(target=lambda: children.append(pool._run(os.getpid)))
            thread.start()
            thread.join()

        assert children[0] == children[1]


def test_a_pool_whose_idle_children_were_killed_goes_on(make_clip):
    with DecodePool(processes=1, timeout_s=10, memory_mib=2048) as pool:
        child = pool._run(os.getpid)
        os.kill(child, signal.SIGKILL)

        for _ in range(3):
            assert pool.extract(make_clip(), sampling=Sampling(), limits=Limits()).keyframes_in_file == 4


def test_a_pool_whose_children_take_up_nothing_any_more_is_replaced(monkeypatch, make_clip):
    objects, clip = ObjectStore(StoreSettings()), make_clip(size=(160, 120), frames=240, gop=24, qp="1")
    monkeypatch.setattr(pool_module, "_STUCK_S", 4.0)
    monkeypatch.setattr(pool_module, "_POLL_S", 0.5)
    with DecodePool(processes=1, timeout_s=2, memory_mib=2048) as pool:
        child = pool._run(os.getpid)
        os.kill(child, signal.SIGSTOP)

        got, _ = pool.extract_by_ranges(
            RemoteVideo(objects, objects.stat(str(clip))), sampling=Sampling(num_frames=2), limits=Limits()
        )
        assert got.keyframes_in_file == 10
        assert pool._run(os.getpid) != child


def test_a_child_killed_once_costs_its_video_nothing(pool, tmp_path):
    assert pool._run(_kill_self_once, tmp_path / "done") == "alive"


def test_a_hanging_child_is_ended_and_replaced(make_clip):
    with DecodePool(processes=1, timeout_s=3, memory_mib=2048) as pool:
        with pytest.raises(DecoderTimeoutError, match="3 s"):
            pool._run(time.sleep, 60)

        assert pool.extract(make_clip(), sampling=Sampling(), limits=Limits()).keyframes_in_file == 4


class OnAHangingDisk:
    """A video whose reads only the kernel could end."""

    size_bytes, max_wait_s = 1_000_000, math.inf

    def read(self, *_span):
        time.sleep(60)


def test_a_local_video_read_in_parts_has_no_more_time_than_one_read_whole():
    wanted = {"sampling": Sampling(), "limits": Limits()}
    with DecodePool(processes=1, timeout_s=3, memory_mib=2048) as pool, pytest.raises(DecoderTimeoutError, match="3 s"):
        pool.extract_by_ranges(OnAHangingDisk(), **wanted)


def test_memory_is_limited(pool):
    with pytest.raises(DecoderCrashedError, match="memory_mib"):
        pool._run(bytearray, 4 * 1024**3)


def test_children_do_not_hear_ctrl_c(pool):
    assert pool._run(signal.getsignal, signal.SIGINT) == signal.SIG_IGN


def test_children_are_gone_when_their_parent_is_killed():
    owner = subprocess.Popen([sys.executable, "-c", _OWNER], stdout=subprocess.PIPE, text=True)
    child = int(owner.stdout.readline())
    assert Path(f"/proc/{child}").exists()

    owner.kill()
    owner.wait()
    owner.stdout.close()

    deadline = time.monotonic() + 10
    while _is_running(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _is_running(child)


def test_a_closed_pool_lets_its_threads_go_and_starts_nothing_anew():
    before = set(multiprocessing.active_children())
    pool = DecodePool(processes=1, timeout_s=60, memory_mib=2048)
    ended = []
    threads = [threading.Thread(target=lambda: ended.append(_ending(pool))) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(1)

    pool.close()
    for thread in threads:
        thread.join(10)

    assert ended == [RuntimeError] * 3
    assert set(multiprocessing.active_children()) <= before


def _ending(pool):
    try:
        pool._run(time.sleep, 50)
    except RuntimeError as error:
        return type(error)
    return None


_OWNER = """
import os, time
from reelabel.pool.decode_pool import DecodePool

if __name__ == "__main__":
    pool = DecodePool(processes=1, timeout_s=60, memory_mib=2048)
    print(pool._run(os.getpid), flush=True)
    pool._run(time.sleep, 50)
"""


def _is_running(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    # Where nobody reaps orphans, a dead child stays as a zombie.
    return state != "Z"


def _kill_self_once(marker):
    if marker.exists():
        return "alive"
    marker.touch()
    return os.kill(os.getpid(), signal.SIGKILL)


def _kill_self():
    os.kill(os.getpid(), signal.SIGKILL)


def test_processor_time_is_limited_for_each_video_alone(make_clip):
    with DecodePool(processes=1, timeout_s=30, memory_mib=2048, cpu_s=1) as pool:
        with pytest.raises(DecoderTimeoutError, match="1 s of CPU time"):
            pool._run(_burn, 10)

        for _ in range(3):
            pool._run(_burn, 0.6)
        assert pool.extract(make_clip(), sampling=Sampling(), limits=Limits()).keyframes_in_file == 4


def _burn(seconds):
    started = time.process_time()
    while time.process_time() - started < seconds:
        pass


@pytest.mark.parametrize(
    ("what", "most"), [(resource.RLIMIT_CPU, 60), (resource.RLIMIT_AS, 3 * 1024**3)], ids=["processor", "memory"]
)
def test_limits_of_the_users_own_hold_where_they_are_lower(make_clip, what, most):
    def limit():
        resource.setrlimit(what, (most, most))

    command = [sys.executable, "-c", _EXTRACTOR, str(make_clip()), str(what)]

    assert subprocess.check_output(command, preexec_fn=limit, text=True) == f"4 {(most, most)}\n"


_EXTRACTOR = """
import resource, sys
from pathlib import Path
from tasks.domain import Sampling
from reelabel.limits import Limits
from reelabel.pool.decode_pool import DecodePool

if __name__ == "__main__":
    with DecodePool(processes=1, timeout_s=60, memory_mib=4096) as pool:
        got = pool.extract(Path(sys.argv[1]), sampling=Sampling(), limits=Limits())
        print(got.keyframes_in_file, pool._run(resource.getrlimit, int(sys.argv[2])))
"""
