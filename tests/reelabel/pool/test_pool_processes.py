"""The processes of a pool: how they start, what they inherit, when they are replaced, and how they end."""

import gc
import math
import multiprocessing
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

from reelabel.errors import (
    DecodersClosedError,
    DecoderTimeoutError,
    ProcessDiedError,
)
from reelabel.extract import extract_local
from reelabel.pool import process as process_module
from reelabel.pool.decode_pool import DecodePool
from reelabel.pool.wire import Channel
from tests.only_child import LOCKS, locks_of, only_child
from tests.open_descriptors import open_descriptors
from tests.reelabel.pool.videos import LONG, WANTED, pool, remote
from tests.wait import until

__all__ = ["pool"]


def test_a_child_inherits_no_secrets_or_files(make_clip, tmp_path, monkeypatch):
    secrets = {"REELABEL_DATABASE_URL": "postgres://s3cret", "AWS_SECRET_ACCESS_KEY": "s3cret", "HOME": "/s3cret"}
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    with (tmp_path / "secret").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        with DecodePool(processes=1, timeout_s=10, memory_mib=2048) as pool:
            pool.extract(make_clip(), **WANTED)
            child = Path(f"/proc/{only_child(pool)}")
            names = {each.partition("=")[0] for each in (child / "environ").read_text().split("\0") if each}
            time.sleep(0.5)  # it closes the frames that it has sent
            opened = {int(each.name): str(each.readlink()) for each in (child / "fd").iterdir()}

    assert names <= {"OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "LD_LIBRARY_PATH", "PYTHONHOME", "LC_CTYPE"}
    assert [opened.pop(number) for number in (0, 1, 2)] == ["/dev/null"] * 3
    [connection] = opened.values()
    assert connection.startswith("socket:")


def test_children_are_locked_and_their_time_is_reported(make_clip):
    clip = make_clip("clip.mkv", **LONG)
    with DecodePool(processes=1, timeout_s=10, memory_mib=2048, threads=1, sandbox="require") as pool:
        pool.extract(clip, **WANTED)
        got, _ = pool.extract_by_ranges(remote(clip), **WANTED)
        child = only_child(pool)
        status = Path(f"/proc/{child}/status").read_text()
        _, *limits = Path(f"/proc/{child}/limits").read_text().splitlines()
        highest = {line[:26].strip(): line[26:].split()[1] for line in limits}

        np.testing.assert_array_equal(got.unique, extract_local(clip, **WANTED).unique)
        assert locks_of(child) == LOCKS
        assert "Threads:\t1" in status.splitlines()
        assert highest["Max address space"] == highest["Max file size"] == str(2048 * 1024**2)
        assert (highest["Max open files"], highest["Max core file size"]) == ("8", "0")
        with pytest.raises(DecoderTimeoutError, match="0 s of CPU time"):
            process_module._TimeLimit(child, process_module.TimeLimits(timeout_s=10, cpu_s=0))()


def test_children_outlive_the_thread_that_started_them(make_clip):
    clip = make_clip()
    with DecodePool(processes=1, timeout_s=10, memory_mib=2048) as pool:
        children = []
        for _ in range(2):
            thread = threading.Thread(target=lambda: (pool.extract(clip, **WANTED), children.append(pool.process_ids)))
            thread.start()
            thread.join()

        assert children[0] == children[1]


def test_a_pool_survives_the_death_of_idle_children(pool, make_clip):
    pool.extract(make_clip(), **WANTED)
    os.kill(only_child(pool), signal.SIGKILL)

    for _ in range(3):
        assert pool.extract(make_clip(), **WANTED).selection.keyframes_in_file == 4


def test_a_child_that_accepts_no_more_videos_is_replaced(pool, monkeypatch, make_clip):
    monkeypatch.setattr(process_module, "_BEGIN_S", 1.0)
    pool.extract(make_clip(), **WANTED)
    child = only_child(pool)
    os.kill(child, signal.SIGSTOP)

    assert pool.extract(make_clip(), **WANTED).selection.keyframes_in_file == 4
    assert only_child(pool) != child


def test_processes_that_are_not_started_ahead_are_started_once_a_video_needs_one(make_clip):
    clip = make_clip()
    with DecodePool(processes=3, timeout_s=10, memory_mib=2048, ahead=False) as pool:
        assert pool.process_ids == []
        for _ in range(2):
            pool.extract(clip, **WANTED)
            assert len(pool.process_ids) == 1


def test_each_video_can_have_its_own_process(make_clip):
    clip, seen = make_clip(), []
    with DecodePool(processes=1, timeout_s=10, memory_mib=2048, videos_per_process=1) as pool:
        pool.extract(clip, **WANTED)
        for _ in range(3):
            seen.append(only_child(pool))  # started ahead
            assert len(pool.extract(clip, **WANTED).unique) == 4

    assert len(set(seen)) == 3


def test_a_process_is_replaced_after_its_number_of_videos(make_clip):
    clip, seen = make_clip(), []
    with DecodePool(processes=1, timeout_s=10, memory_mib=2048, videos_per_process=2) as pool:
        pool.extract(clip, **WANTED)
        seen += pool.process_ids
        pool.extract(clip, **WANTED)
        pool.extract(clip, **WANTED)

        assert seen[0] not in pool.process_ids


class OnAHangingDisk:
    """A video whose reads only the kernel could end."""

    size_bytes, max_wait_s = 1_000_000, math.inf

    def read(self, *_span):
        time.sleep(60)


def test_a_local_video_read_in_parts_gets_no_more_time_than_one_read_whole():
    with DecodePool(processes=1, timeout_s=3, memory_mib=2048) as pool, pytest.raises(DecoderTimeoutError, match="3 s"):
        pool.extract_by_ranges(OnAHangingDisk(), **WANTED)


def test_children_ignore_ctrl_c(pool, make_clip):
    pool.extract(make_clip(), **WANTED)
    child = only_child(pool)

    os.kill(child, signal.SIGINT)

    assert os.getpgid(child) != os.getpgid(0)
    pool.extract(make_clip(), **WANTED)
    assert only_child(pool) == child


_OWNER = """
import sys, time
from pathlib import Path
from reelabel.options import Limits
from reelabel.pool.decode_pool import DecodePool
from reelabel.errors import ProcessDiedError
from reelabel.pool.wire import Channel
from reelabel.sampling.options import Sampling

pool = DecodePool(processes=1, timeout_s=60, memory_mib=2048)
pool.extract(Path(sys.argv[1]), sampling=Sampling(), limits=Limits())
print(*pool.process_ids, flush=True)

class Slow:
    size_bytes, max_wait_s = 1_000_000, 60
    def read(self, *_span):
        time.sleep(50)

if sys.argv[2] == "busy":
    pool.extract_by_ranges(Slow(), sampling=Sampling(), limits=Limits())
time.sleep(50)
"""


@pytest.mark.parametrize("state", ["idle", "busy"])
def test_children_are_gone_when_their_parent_is_killed(make_clip, state):
    command = [sys.executable, "-c", _OWNER, str(make_clip()), state]
    owner = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    child = int(owner.stdout.readline())
    assert Path(f"/proc/{child}").exists()

    owner.kill()
    owner.wait()
    owner.stdout.close()

    until(lambda: not _is_running(child))


_STOPPED = """
import sys
from pathlib import Path
from reelabel.options import Limits
from reelabel.pool.decode_pool import DecodePool
from reelabel.errors import ProcessDiedError
from reelabel.pool.wire import Channel
from reelabel.sampling.options import Sampling

wanted = {"sampling": Sampling(num_frames=4), "limits": Limits()}
with DecodePool(processes=1, timeout_s=4, memory_mib=2048) as pool:
    pool.extract(Path(sys.argv[1]), **wanted)
    print("begins", flush=True)
    for _ in range(100):
        images = pool.extract(Path(sys.argv[1]), **wanted).images
    print(len(images), flush=True)
"""


@pytest.mark.system
def test_time_in_which_the_owner_was_stopped_does_not_count(make_clip):
    command = [sys.executable, "-c", _STOPPED, str(make_clip(**LONG))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as owner:
        assert owner.stdout.readline() == "begins\n"
        time.sleep(0.2)
        owner.send_signal(signal.SIGSTOP)
        time.sleep(7)
        owner.send_signal(signal.SIGCONT)
        output, errors = owner.communicate(timeout=60)

    assert output == "4\n", errors


def test_a_closed_pool_releases_its_threads_and_starts_nothing():
    pool = DecodePool(processes=1, timeout_s=60, memory_mib=2048)
    children, ended = set(pool.process_ids), []
    threads = [threading.Thread(target=lambda: ended.append(_ending(pool))) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(1)

    pool.close()
    for thread in threads:
        thread.join(10)

    assert ended == [DecodersClosedError] * 3
    assert pool.process_ids == []
    assert not any(map(_is_running, children))
    assert _ending(pool) is DecodersClosedError


def test_a_channel_that_another_thread_has_closed_counts_as_that_of_a_process_that_died():
    ours, theirs = socket.socketpair()
    channel = Channel(ours)
    channel.close()

    with theirs, pytest.raises(ProcessDiedError):
        channel.has_input()


def _ending(pool):
    try:
        pool.extract_by_ranges(OnAHangingDisk(), **WANTED)
    except DecodersClosedError as error:
        return type(error)
    return None


def _is_running(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    # Where nobody reaps orphans, a dead child stays as a zombie.
    return state != "Z"


@pytest.mark.parametrize(
    ("what", "name", "most"),
    [(resource.RLIMIT_CPU, "Max cpu time", 60), (resource.RLIMIT_AS, "Max address space", 3 * 1024**3)],
    ids=["CPU time", "memory"],
)
def test_lower_limits_of_the_user_are_kept(make_clip, what, name, most):
    def limit():
        resource.setrlimit(what, (most, most))

    command = [sys.executable, "-c", _EXTRACTOR, str(make_clip()), name]

    assert subprocess.check_output(command, preexec_fn=limit, text=True) == f"4 {[str(most)] * 2}\n"


_EXTRACTOR = """
import resource, sys
from pathlib import Path
from tasks.domain import Sampling
from reelabel.options import Limits
from reelabel.pool.decode_pool import DecodePool
from reelabel.errors import ProcessDiedError
from reelabel.pool.wire import Channel

with DecodePool(processes=1, timeout_s=60, memory_mib=4096) as pool:
    got = pool.extract(Path(sys.argv[1]), sampling=Sampling(), limits=Limits())
    limits = Path(f"/proc/{pool.process_ids[0]}/limits").read_text()
    [line] = [line for line in limits.splitlines() if line.startswith(sys.argv[2])]
    print(got.selection.keyframes_in_file, line.split()[3:5])
"""


def test_a_forked_process_is_refused_instead_of_sharing_decoding_processes(make_clip):
    clip = make_clip()
    with DecodePool() as pool:
        pool.extract(clip)
        context = multiprocessing.get_context("fork")
        theirs, ours = context.Pipe()
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # of forking with threads
            child = context.Process(target=_use_and_close, args=(pool, clip, theirs))
            child.start()

        assert "which this one was forked; make one here" in ours.recv()
        child.join()
        assert len(pool.extract(clip).shown) == 16  # what the child closed was not the parent's


def _use_and_close(pool, clip, connection):
    try:
        pool.extract(clip)
    except RuntimeError as error:
        connection.send(str(error))
    pool.close()


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_pool_that_is_not_closed_leaves_no_descriptor_behind(make_clip):
    clip, before = make_clip(), len(open_descriptors())
    unclosed = DecodePool(processes=1)
    unclosed.extract(clip, **WANTED)
    del unclosed

    gc.collect()

    assert len(open_descriptors()) <= before


_WITHOUT_STANDARD_STREAMS = """
import os, sys
os.closerange(0, 3)
from reelabel.pool.decode_pool import DecodePool
with DecodePool(processes=1) as pool:
    os._exit(len(pool.open(sys.argv[1]).frames([0, 1])) + 40)
"""


def test_a_process_without_standard_streams_can_decode(make_clip):
    command = [sys.executable, "-c", _WITHOUT_STANDARD_STREAMS, str(make_clip())]

    assert subprocess.run(command, check=False, timeout=60).returncode == 42
