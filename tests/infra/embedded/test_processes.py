import os
import signal
import socket
import subprocess
import sys

import pytest

from infra.embedded.processes import Identity, end, end_marked, free_port, spawn
from tests.wait import until


@pytest.fixture
def start(tmp_path):
    """Start a small Python program that carries the test's own marker."""

    def start(program):
        return spawn(
            [sys.executable, "-c", program], environment=os.environ, log=tmp_path / "log", marker=str(tmp_path)
        )

    yield start
    end_marked(str(tmp_path))


def _wait_for(log, text):
    until(lambda: text in log.read_text())


def test_a_process_has_its_own_session_until_it_is_stopped(start):
    process = start("import time; time.sleep(60)")

    assert process.is_alive()
    assert os.getsid(process.pid) == process.pid

    end(process, stop_signal=signal.SIGTERM, grace_s=5)

    assert not process.is_alive()


def test_a_process_that_ignores_the_request_is_forced(start, tmp_path):
    process = start("import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True); time.sleep(60)")
    _wait_for(tmp_path / "log", "1")

    end(process, stop_signal=signal.SIGTERM, grace_s=0.2)

    assert not process.is_alive()


def test_a_killed_process_counts_as_ending_before_it_is_dead(start, tmp_path):
    # To give 200 MB back takes longer than to look.
    process = start("held = bytearray(b'1') * 200_000_000; import time; print(1, flush=True); time.sleep(60)")
    _wait_for(tmp_path / "log", "1")
    assert not process.is_ending()

    os.kill(process.pid, signal.SIGKILL)

    assert process.is_ending()
    end(process, stop_signal=signal.SIGKILL, grace_s=5)
    assert not process.is_alive()
    assert process.is_ending()


def test_a_later_process_with_the_same_id_is_told_apart(start):
    process = start("import time; time.sleep(60)")
    earlier = Identity(pid=process.pid, start_ticks=process.start_ticks - 1)

    end(earlier, stop_signal=signal.SIGKILL, grace_s=1)

    assert not earlier.is_alive()
    assert process.is_alive()


def test_processes_that_a_dead_one_left_behind_are_found_and_stopped(start, tmp_path):
    process = start(
        "import subprocess, sys;"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], start_new_session=True);"
        "print(child.pid, flush=True)"
    )
    _wait_for(tmp_path / "log", "\n")
    child_pid = int((tmp_path / "log").read_text())
    end(process, stop_signal=signal.SIGKILL, grace_s=1)

    end_marked(str(tmp_path))

    with pytest.raises(ProcessLookupError):
        _refuse_zombie(child_pid)


def _refuse_zombie(pid):
    os.kill(pid, 0)
    state = subprocess.run(["cat", f"/proc/{pid}/stat"], capture_output=True, text=True, check=False).stdout
    if not state or state.rpartition(")")[2].split()[0] == "Z":
        raise ProcessLookupError


def test_a_port_in_use_is_replaced_by_a_free_one():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        assert free_port(port) != port

    assert free_port(port) == port
