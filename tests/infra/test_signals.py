"""A process ends soon after one Ctrl-C and at once after two, whatever it is doing, and leaves nothing running."""

import os
import pty
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from tests.wait import until

_START = """
import ctypes, signal, subprocess, sys, threading, time
# Where the tests themselves run in the background, a shell has them ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGUSR1, lambda *_: None)
from infra import signals
signals.install("Stopped at once.", grace_s={grace_s}, termination_s={grace_s})
nowhere = dict(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
child = subprocess.Popen(["sleep", "600"], start_new_session=True, **nowhere)
"""
# One long sleep could miss a signal that comes right before the system call; a short one sees it at its end.
_STUBBORN = """
while True:
    try:
        print(child.pid, flush=True)
        while True:
            time.sleep(0.05)
    except KeyboardInterrupt:
        pass
"""
_IN_A_LIBRARY = """
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda *_: None)
print(child.pid, flush=True)
mutex = ctypes.create_string_buffer(64)
for _ in range(2):
    ctypes.CDLL(None).pthread_mutex_lock(mutex)
"""
_WAITS_FOR_A_THREAD = """
threading.Thread(target=time.sleep, args=(600,)).start()
signals.silence()
try:
    print(child.pid, flush=True)
    time.sleep(600)
except KeyboardInterrupt:
    sys.exit(1)
"""

_WAITS = """
try:
    print(child.pid, flush=True)
    threading.Event().wait()
except KeyboardInterrupt:
    sys.exit(130)
finally:
    print("ends", flush=True)
"""
_WAITS_AFTER_POLARS = "import polars; polars.DataFrame({'a': [1]}).filter(polars.col('a') > 0)" + _WAITS

_AT_A_TERMINAL = """
import time
from infra import signals
signals.install()
try:
    print("begins", flush=True)
    while True:
        time.sleep(0.05)
finally:
    print("ends", flush=True)
"""


@pytest.fixture
def begin():
    processes = []

    def begin(body, *, grace_s):
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", _START.format(grace_s=grace_s) + body],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append((process, int(process.stdout.readline())))
        return processes[-1]

    yield begin
    for process, child in processes:
        process.kill()
        process.communicate()
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


def is_alive(pid):
    state = subprocess.run(["ps", "-o", "state=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return state.strip() not in {"", "Z"}


@pytest.mark.parametrize(
    ("body", "stderr"),
    [
        pytest.param(_STUBBORN, "Stopped at once.", id="goes on"),
        pytest.param(_IN_A_LIBRARY, "Stopped at once.", id="is stuck in a library"),
        pytest.param(_WAITS_FOR_A_THREAD, "", id="waits for a thread"),
    ],
)
@pytest.mark.parametrize("interrupts", [1, 2])
def test_a_process_ends_and_its_children_with_it(begin, body, stderr, interrupts):
    process, child = begin(body, grace_s=0.5 if interrupts == 1 else 600)
    began_s = time.monotonic()
    for _ in range(interrupts):
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)

    assert process.wait(timeout=20) == 130
    assert process.stderr.read().strip() == stderr
    until(lambda: not is_alive(child))
    assert time.monotonic() - began_s < 10


def test_other_signals_and_one_ctrl_c_leave_time_to_end(begin):
    process, child = begin(_STUBBORN, grace_s=600)
    for number in (signal.SIGUSR1, signal.SIGUSR1, signal.SIGINT):
        process.send_signal(number)

    assert process.stdout.readline() == f"{child}\n"  # it goes on
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=0.5)
    assert is_alive(child)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_unwinds_a_main_thread_that_waits(begin, number, code):
    process, _ = begin(_WAITS, grace_s=600)

    process.send_signal(number)

    assert process.wait(timeout=60) == code
    assert process.stdout.read() == "ends\n"


@pytest.mark.parametrize("attempt", range(3))
def test_ctrl_c_wakes_a_main_thread_whose_system_calls_polars_has_restarted(begin, attempt):
    process, _ = begin(_WAITS_AFTER_POLARS, grace_s=600)

    process.send_signal(signal.SIGINT)

    assert process.wait(timeout=60) == 130, attempt
    assert process.stdout.read() == "ends\n"


def test_a_process_that_does_not_end_after_sigterm_is_ended(begin):
    process, child = begin(_IN_A_LIBRARY, grace_s=0.5)

    process.terminate()

    assert process.wait(timeout=60) == 143
    until(lambda: not is_alive(child))


@pytest.mark.parametrize("is_under_nohup", [False, True])
def test_a_closed_terminal_ends_a_process_as_sigterm_does(is_under_nohup):
    process, terminal = pty.fork()
    if not process:
        if is_under_nohup:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        os.execv(sys.executable, [sys.executable, "-P", "-c", _AT_A_TERMINAL])
    output = b""
    while not output.endswith(b"\n"):
        output += os.read(terminal, 100)

    os.close(terminal)
    if is_under_nohup:
        time.sleep(0.3)
        assert is_alive(process)
        os.kill(process, signal.SIGKILL)

    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == (-signal.SIGKILL if is_under_nohup else 143)
