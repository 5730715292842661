"""What a locked process is left with, and what is reported where a wall is missing."""

import ctypes
import importlib
import json
import mmap
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple
from pathlib import Path

import numpy as np
import pytest

from reelabel.errors import SandboxUnavailableError
from reelabel.sandbox.kernel import capget, capset, prctl
from reelabel.sandbox.lockdown import check_mode, probe
from reelabel.sandbox.seccomp import ARCHITECTURES
from tests.reelabel.sandbox.child import (
    DESCRIPTORS,
    FILE_BYTES,
    LANDLOCK_CREATE_RULESET,
    MEMORY_BYTES,
    SECCOMP,
    USER,
    WALLS,
    become,
    lock,
    refuse,
    result_of,
    run_child,
)

IS_ROOT = os.geteuid() == 0
NOBODY = 65534
NO_CAPABILITIES = "0000000000000000"


def privileges_of(*, user=0, without_kill=False):
    become(user)
    if without_kill:
        header, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
        capget(header, sets)
        sets[0] &= ~(1 << 5)
        capset(header, sets)
    WALLS["privileges"]()
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {name: value.strip() for name, value in status.items()} | {"Dumpable": prctl(3)}


@pytest.mark.parametrize("user", [0, USER] if IS_ROOT else [0])
def test_privileges_are_gone_for_good(user):
    got = result_of(run_child(privileges_of, user=user))

    assert {got[name] for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {NO_CAPABILITIES}
    assert (got["NoNewPrivs"], got["Dumpable"]) == ("1", 0)
    if IS_ROOT and not user:
        assert got["CapBnd"] == NO_CAPABILITIES
        assert (got["Uid"], got["Gid"], got["Groups"]) == (f"{NOBODY}\t{NOBODY}\t{NOBODY}\t{NOBODY}",) * 2 + ("",)
    else:
        assert set(got["Uid"].split()) == {str(user or os.getuid())}


def test_a_parent_that_could_not_kill_another_user_keeps_its_own_without_capabilities():
    got = result_of(run_child(privileges_of, without_kill=True))

    assert (set(got["Uid"].split()), got["CapEff"], got["CapPrm"]) == ({str(os.getuid())}, *[NO_CAPABILITIES] * 2)


def limits_of():
    missing = lock()
    names = ("RLIMIT_AS", "RLIMIT_FSIZE", "RLIMIT_NOFILE", "RLIMIT_CORE")
    return {"missing": missing} | {name: resource.getrlimit(getattr(resource, name)) for name in names}


def test_limits_are_hard():
    assert result_of(run_child(limits_of)) == {
        "missing": [],
        "RLIMIT_AS": [MEMORY_BYTES, MEMORY_BYTES],
        "RLIMIT_FSIZE": [FILE_BYTES, FILE_BYTES],
        "RLIMIT_NOFILE": [DESCRIPTORS, DESCRIPTORS],
        "RLIMIT_CORE": [0, 0],
    }


def spend_cpu_time():
    resource.setrlimit(resource.RLIMIT_CPU, (1, resource.RLIM_INFINITY))
    lock()
    while True:
        pass


def abort():
    lock()
    os.abort()


def touch_nothing():
    lock()
    ctypes.string_at(0)


@pytest.mark.parametrize(
    ("death", "expected"), [(spend_cpu_time, signal.SIGXCPU), (abort, signal.SIGABRT), (touch_nothing, signal.SIGSEGV)]
)
def test_a_locked_process_dies_as_any_other(death, expected):
    assert run_child(death).returncode == -expected


def enter_32_bit_code(*, is_locked):
    """Make system call 20, getpid to 32-bit code and writev to 64-bit code, by the interrupt of 32-bit code."""
    code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(bytes.fromhex("b814000000 cd80 c3"))
    function = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
    if is_locked:
        lock()
    return function() == os.getpid()


def test_system_calls_of_32_bit_code_kill_the_process():
    unlocked = run_child(enter_32_bit_code, is_locked=False)
    locked = run_child(enter_32_bit_code, is_locked=True)

    # Where there is no such code, both die of the instruction.
    assert locked.returncode == (unlocked.returncode or -signal.SIGSYS)


def work(*, threads):
    """Do what a decoding process needs besides decoding."""
    lock(threads=threads)
    done = {}
    try:
        np.ones(MEMORY_BYTES, np.uint8)
    except MemoryError:
        done["memory"] = "MemoryError"
    thread = threading.Thread(target=lambda: done.update(thread="ran"))
    try:
        thread.start()
        thread.join()
    except RuntimeError as error:
        done["thread"] = str(error)
    try:
        importlib.import_module("wave")
    except ImportError:
        done["traceback"] = traceback.format_exc().splitlines()[-1]
    return done


@pytest.mark.parametrize(("threads", "outcome"), [(1, "can't start new thread"), (2, "ran")])
def test_errors_in_a_locked_process_are_pythons_own(threads, outcome):
    assert result_of(run_child(work, threads=threads)) == {
        "memory": "MemoryError",
        "thread": outcome,
        "traceback": "ModuleNotFoundError: No module named 'wave'",
    }


def lock_beside_a_thread(*, mode):
    is_locked, tried, results = threading.Event(), threading.Event(), []

    def try_from_thread():
        is_locked.wait()
        try:
            socket.socket().close()
        except OSError as error:
            results.append(error.errno)
        tried.set()

    threading.Thread(target=try_from_thread, daemon=True).start()
    try:
        results.append(lock(mode=mode))
    except SandboxUnavailableError as error:
        results.append(error.message)
    is_locked.set()
    tried.wait()
    return results


def test_a_thread_that_already_ran_is_under_the_filter_and_told_not_to_be_under_the_rest():
    assert result_of(run_child(lock_beside_a_thread, mode="auto")) == [["privileges", "landlock"], 1]
    [message, _] = result_of(run_child(lock_beside_a_thread, mode="require"))
    assert "privileges (other threads already run), landlock (other threads already run)" in message


def test_off_only_limits_resources():
    assert result_of(run_child(open_after_locking, mode="off")) == [[], "opened", MEMORY_BYTES]


def open_after_locking(*, mode):
    missing = lock(mode=mode)
    Path("/proc/self/status").read_text()
    return missing, "opened", resource.getrlimit(resource.RLIMIT_AS)[0]


def outlive_parent(*, descriptor):
    lock(die_with_parent=True)
    os.write(descriptor, b"locked")
    time.sleep(60)


def leave_child(*, descriptor):
    """Start a process, and end once it is locked."""
    ours, childs = os.pipe()
    with ThreadPoolExecutor(1) as thread:
        thread.submit(run_child, outlive_parent, descriptors=(descriptor, childs), descriptor=childs)
        os.read(ours, 6)
        os._exit(0)


def test_a_locked_process_dies_with_its_parent():
    ours, childs = os.pipe()
    run_child(leave_child, descriptors=(childs,), descriptor=childs)
    os.close(childs)

    assert select.select([ours], [], [], 20)[0], "the process that has the other end still lives"
    os.close(ours)


def test_asking_changes_nothing():
    def status():
        lines = Path("/proc/self/status").read_text().splitlines()
        return [line for line in lines if line.startswith(("Cap", "Uid", "NoNewPrivs", "Seccomp"))]

    before = status()

    assert all(protection.is_available and not protection.advice for protection in probe())
    check_mode("require")
    assert status() == before


def lock_under_filter(*, refused, number, mode):
    """Refuse one system call, as the profile of a container does, and report what the modes make of it."""
    refuse(refused, number)
    missing = [astuple(protection) for protection in probe() if not protection.is_available]
    return missing, message_of(check_mode, mode), lock(mode=mode) if mode == "auto" else message_of(lock, mode=mode)


def message_of(function, *arguments, **named):
    try:
        function(*arguments, **named)
    except SandboxUnavailableError as error:
        return error.message


@pytest.mark.parametrize(
    ("refused", "number", "name", "detail", "advice"),
    [
        (
            LANDLOCK_CREATE_RULESET,
            1,
            "landlock",
            "the container refuses Landlock",
            "allow landlock_create_ruleset and ",
        ),
        (
            LANDLOCK_CREATE_RULESET,
            38,
            "landlock",
            "the kernel has no Landlock, or it is disabled",
            "use Linux 5.13 or later",
        ),
        (SECCOMP, 1, "seccomp", "the kernel or the container refuses seccomp filters", "allow the system call"),
    ],
)
def test_what_a_container_or_kernel_lacks_is_named(refused, number, name, detail, advice):
    given = {"refused": refused, "number": number}

    [found], refusal, missing = result_of(run_child(lock_under_filter, **given, mode="auto"))

    assert found[:3] == [name, False, detail]
    assert found[3].startswith(advice)
    assert (refusal, missing) == (None, [name])

    _, refusal, in_child = result_of(run_child(lock_under_filter, **given, mode="require"))

    assert refusal == (
        f"Decoding processes cannot be locked, as extract.sandbox requires: {detail}; {found[3]}, "
        "or set extract.sandbox to auto."
    )
    assert in_child == (
        f"The decoding process cannot be locked: {name} ({os.strerror(number)}); set extract.sandbox to auto."
    )


def test_another_architecture_is_named():
    script = (
        "import ctypes; ctypes.CDLL(None).personality(8)\n"  # what `setarch linux32` does
        "import json; from dataclasses import astuple; from reelabel.sandbox.lockdown import lock_down, probe\n"
        f"print(json.dumps([astuple(probe()[-1]), lock_down('auto', memory_bytes={MEMORY_BYTES})]))"
    )
    path = os.pathsep.join(sys.path)
    done = subprocess.run([sys.executable, "-c", script], env={"PYTHONPATH": path}, capture_output=True, check=True)

    [name, is_available, detail, advice], missing = json.loads(done.stdout)

    assert (name, is_available, missing) == ("seccomp", False, ["seccomp"])
    assert detail.endswith("are unknown")
    assert advice == f"use a machine with {' or '.join(ARCHITECTURES)}"
