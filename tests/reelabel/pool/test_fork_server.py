"""Decoding processes are forked from a server that sees no video, and may be lost at any time."""

import os
import resource
import signal
from functools import partial
from pathlib import Path

import pytest

from reelabel.errors import DecoderCrashedError, DecodersLostError, NotStartedError
from reelabel.options import Limits
from reelabel.pool import fork_server
from reelabel.pool.decode_pool import DecodePool
from reelabel.pool.fork_server import ForkServer
from reelabel.pool.messages import Setup
from reelabel.pool.process import DecodingProcess
from reelabel.sampling.options import Sampling
from tests.only_child import only_child
from tests.open_descriptors import open_descriptors
from tests.reelabel.pool import bad_child
from tests.wait import until

WANTED = {"sampling": Sampling(num_frames=4), "limits": Limits()}


def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_processes_of_a_pool_have_one_server_which_holds_no_video(make_clip):
    with DecodePool(processes=2) as pool:
        pool.extract(make_clip(), **WANTED)
        children = pool.process_ids
        servers = {parent_of(child) for child in children}
        held = open_descriptors(*servers)

    assert len(children) == 2
    assert len(servers) == 1
    assert servers != {os.getpid()}
    assert sorted(each.partition(":")[0] for each in held) == ["/dev/null", "/dev/null", "/memfd", "socket"]


@pytest.mark.parametrize("lost", ["server", "child"])
def test_whatever_is_killed_is_replaced(make_clip, lost):
    with DecodePool(processes=1) as pool:
        pool.extract(make_clip(), **WANTED)
        child = only_child(pool)
        server = parent_of(child)

        os.kill(server if lost == "server" else child, signal.SIGKILL)
        until(lambda: not is_running(child))

        assert len(pool.extract(make_clip(), **WANTED).unique) == 4
        assert only_child(pool) != child
        assert (parent_of(only_child(pool)) != server) == (lost == "server")


def test_a_closed_pool_leaves_no_server_and_no_descriptors(make_clip):
    with DecodePool(processes=1) as pool:
        pool.extract(make_clip(), **WANTED)
    before = len(open_descriptors())

    with DecodePool(processes=2, videos_per_process=1) as pool:
        for _ in range(3):
            pool.extract(make_clip(), **WANTED)
        server = parent_of(pool.process_ids[0])

    assert not is_running(server)
    assert len(open_descriptors()) <= before


def test_a_pool_that_is_closed_at_once_waits_for_no_import():
    pool = DecodePool(processes=1)

    pool.close()

    assert pool.process_ids == []


def test_after_a_crash_processes_have_another_server(make_clip, tmp_path, monkeypatch):
    monkeypatch.setattr(fork_server, "CHILD_MODULE", bad_child.__name__)
    hostile = tmp_path / "hostile.mp4"
    hostile.write_text("do die")
    with DecodePool(processes=1, sandbox="off") as pool:
        pool.extract(make_clip(), **WANTED)
        server = parent_of(only_child(pool))

        with pytest.raises(DecoderCrashedError, match=r"died twice \(exit code -?\d+\)"):
            pool.extract(hostile, **WANTED)
        pool.extract(make_clip(), **WANTED)

        assert parent_of(only_child(pool)) != server
        assert not is_running(server)


@pytest.mark.parametrize(
    ("module", "message"),
    [("no.such.module", "No module named 'no'"), ("exits", r"\(The last one: out of order\.\)")],
)
def test_the_reason_why_processes_do_not_start_is_reported(make_clip, monkeypatch, module, message, tmp_path):
    code = "import os, sys; print('out of order', file=sys.stderr, flush=True); os._exit(3)"
    (tmp_path / "exits.py").write_text(code)
    monkeypatch.setattr(fork_server, "CHILD_MODULE", module)
    monkeypatch.syspath_prepend(str(tmp_path))

    with DecodePool(processes=1) as pool, pytest.raises(DecodersLostError, match=message):
        pool.extract(make_clip(), **WANTED)


def test_a_server_that_another_thread_retires_says_that_nothing_was_begun():
    server = fork_server.ForkServer()
    server.discard()

    with pytest.raises(NotStartedError):
        server.fork(0, 2)


@pytest.mark.parametrize("left", [1, 2])
@pytest.mark.parametrize(
    "start",
    [ForkServer, partial(DecodingProcess, None, Setup(memory_bytes=1, threads=1, sandbox="off"))],
    ids=["server", "process"],
)
def test_a_start_that_fails_for_want_of_descriptors_leaves_none_open(start, left):
    before, limits = len(open_descriptors()), resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + left, limits[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)

    assert len(open_descriptors()) <= before
