import os
import signal
import socket
import subprocess
import sys

import pytest

from infra.processes import MARKER, end_marked, free_port, is_alive, start_ticks_of
from tests.wait import until


@pytest.fixture
def start(tmp_path):
    """Start a small Python program that carries the test's own marker."""

    def start(program):
        with (tmp_path / "log").open("wb") as log:
            environment = {**os.environ, MARKER: str(tmp_path)}
            processes.append(subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=log))
        return processes[-1].pid

    processes = []
    yield start
    end_marked(str(tmp_path))
    for process in processes:
        process.wait()


def _wait_for(log, text):
    until(lambda: text in log.read_text())


def test_a_later_process_with_the_same_id_is_distinguished(start):
    pid = start("import time; time.sleep(60)")
    start_ticks = start_ticks_of(pid)

    assert not is_alive(pid, start_ticks - 1)
    assert is_alive(pid, start_ticks)


def test_processes_that_a_dead_one_left_behind_are_found_and_stopped(start, tmp_path):
    pid = start(
        "import subprocess, sys;"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], start_new_session=True);"
        "print(child.pid, flush=True)"
    )
    _wait_for(tmp_path / "log", "\n")
    child_pid = int((tmp_path / "log").read_text())
    os.kill(pid, signal.SIGKILL)
    child = child_pid, start_ticks_of(child_pid)
    assert is_alive(*child)

    end_marked("another", str(tmp_path))

    assert not is_alive(*child)


def test_a_port_in_use_is_replaced_by_a_free_one():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        assert free_port(port) != port

    assert free_port(port) == port
