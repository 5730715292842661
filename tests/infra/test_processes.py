import os
import signal
import socket
import subprocess
import sys

import pytest

from infra import processes
from infra.processes import (
    MARKER,
    end_marked,
    free_port,
    free_ports,
    has_ended,
    is_alive,
    is_own_peer,
    is_zombie,
    own_process,
    start_ticks_of,
)
from tests.other_user import STRANGER
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

        found = free_port(port)

        assert found != port
        assert 10_000 <= found < 32_768  # below those that the kernel gives to connections

    assert free_port(port) == port


def test_a_random_port_is_below_those_that_the_kernel_gives_to_connections():
    assert all(10_000 <= free_port() < 32_768 for _ in range(20))


def test_several_free_ports_are_different(monkeypatch):
    monkeypatch.setattr("infra.processes.free_port", iter([10_001, 10_001, 10_002]).__next__)

    assert sorted(free_ports(2)) == [10_001, 10_002]


def test_without_a_free_port_the_search_ends(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(processes, "_SERVER_PORTS", [port])
        monkeypatch.setattr(processes, "_PORTS_TRIED", 1)

        with pytest.raises(OSError, match=r"None of 1 ports on 127\.0\.0\.1 is free"):
            free_port()


def test_a_process_that_has_ended_is_known_by_its_name(start, tmp_path):
    pid = start(
        "from infra.processes import own_process; import time; print(own_process(), flush=True); time.sleep(60)"
    )
    _wait_for(tmp_path / "log", "\n")
    name = (tmp_path / "log").read_text().strip()
    namespace, _, ticks = name.rsplit(" ", 2)

    assert not has_ended(name)
    assert not has_ended(own_process())
    assert not has_ended(None)
    assert has_ended(f"{namespace} {pid} {int(ticks) - 1}")  # an earlier process with its id
    assert not has_ended(f"another boot {pid} {int(ticks) - 1}")
    os.kill(pid, signal.SIGKILL)
    until(lambda: has_ended(name))


def test_a_process_that_nobody_has_waited_for_is_no_longer_alive(start):
    pid = start("pass")
    until(lambda: is_zombie(pid))

    assert not is_alive(pid, start_ticks_of(pid))
    assert not is_zombie(os.getpid())


def test_a_pid_without_a_process_is_neither_alive_nor_a_zombie():
    gone = 2**22 + 1  # beyond the largest id

    assert start_ticks_of(gone) == -1
    assert not is_alive(gone, 1)
    assert not is_zombie(gone)


def test_a_name_with_parentheses_and_spaces_hides_nothing(start, tmp_path):
    pid = start("open('/proc/self/comm', 'w').write('a) S 1 (b'); import time; print(flush=True); time.sleep(60)")
    _wait_for(tmp_path / "log", "\n")

    assert is_alive(pid, start_ticks_of(pid))
    assert start_ticks_of(pid) >= start_ticks_of(os.getpid())


PARENT = f"""
import os, subprocess, sys, time
from infra.processes import descendants, kill_children

marker = os.environ.pop("{MARKER}")
sleeping = [sys.executable, "-c", "import time; time.sleep(60)"]
service = subprocess.Popen(sleeping, env={{"{MARKER}": marker}})
child = subprocess.Popen([sys.executable, "-c", f"import subprocess; subprocess.run({{sleeping}})"])
while len(descendants()) < 3:
    time.sleep(0.01)
others = descendants() - {{service.pid}}
kill_children()
child.wait()
print(child.returncode, service.poll(), service.pid, *others, flush=True)
"""


def test_children_and_theirs_are_killed_but_for_embedded_services(start, tmp_path):
    start(PARENT)
    _wait_for(tmp_path / "log", "\n")
    code, state, service, *pids = (tmp_path / "log").read_text().split()

    assert (code, state, len(pids)) == ("-9", "None", 2)
    assert start_ticks_of(int(service)) > 0
    until(lambda: all(is_zombie(int(pid)) or start_ticks_of(int(pid)) == -1 for pid in pids))


def test_the_peer_of_a_socket_is_of_this_user(tmp_path):
    address = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as connecting:
        listening.bind(address)
        listening.listen()
        connecting.connect(address)

        assert is_own_peer(connecting)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_the_peer_of_a_socket_is_of_another_user_if_that_one_listens():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        os.seteuid(STRANGER)
        try:
            assert not is_own_peer(ours)
        finally:
            os.seteuid(0)
