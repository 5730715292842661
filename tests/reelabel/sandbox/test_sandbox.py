"""What a locked process may still do, and what is reported if a layer is missing."""

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from reelabel.sandbox import check_mode, linux, probe
from reelabel.sandbox.seccomp import ARCHITECTURES
from tests.reelabel.sandbox import behaviour
from tests.reelabel.sandbox.child import (
    DESCRIPTORS,
    FILE_BYTES,
    LANDLOCK_CREATE_RULESET,
    MEMORY_BYTES,
    SECCOMP,
    USER,
    result_of,
    run_child,
)

IS_ROOT = os.geteuid() == 0
NOBODY = 65534
NO_CAPABILITIES = "0000000000000000"


@pytest.mark.parametrize("user", [0, USER] if IS_ROOT else [0])
def test_privileges_are_dropped_for_good(user):
    got = result_of(run_child(behaviour.privileges_of, user=user))

    assert {got[name] for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {NO_CAPABILITIES}
    assert (got["NoNewPrivs"], got["Dumpable"]) == ("1", 0)
    if IS_ROOT and not user:
        assert got["CapBnd"] == NO_CAPABILITIES
        assert (got["Uid"], got["Gid"], got["Groups"]) == (f"{NOBODY}\t{NOBODY}\t{NOBODY}\t{NOBODY}",) * 2 + ("",)
    else:
        assert set(got["Uid"].split()) == {str(user or os.getuid())}


def test_a_parent_that_could_not_kill_another_user_keeps_its_own_user_without_capabilities():
    got = result_of(run_child(behaviour.privileges_of, without_kill=True))

    assert (set(got["Uid"].split()), got["CapEff"], got["CapPrm"]) == ({str(os.getuid())}, *[NO_CAPABILITIES] * 2)


def test_resource_limits_are_hard():
    assert result_of(run_child(behaviour.limits_of)) == {
        "missing": [],
        "RLIMIT_AS": [MEMORY_BYTES, MEMORY_BYTES],
        "RLIMIT_FSIZE": [FILE_BYTES, FILE_BYTES],
        "RLIMIT_NOFILE": [DESCRIPTORS, DESCRIPTORS],
        "RLIMIT_CORE": [0, 0],
    }


@pytest.mark.parametrize(
    ("death", "expected"),
    [
        (behaviour.spend_cpu_time, signal.SIGXCPU),
        (behaviour.abort, signal.SIGABRT),
        (behaviour.touch_nothing, signal.SIGSEGV),
    ],
)
def test_a_locked_process_dies_like_any_other(death, expected):
    assert run_child(death).returncode == -expected


def test_a_32_bit_system_call_kills_the_process():
    unlocked = run_child(behaviour.enter_32_bit_code, is_locked=False)
    locked = run_child(behaviour.enter_32_bit_code, is_locked=True)

    # Where there is no such code, both die of the instruction.
    assert locked.returncode == (unlocked.returncode or -signal.SIGSYS)


@pytest.mark.parametrize(("threads", "outcome"), [(1, "can't start new thread"), (2, "ran")])
def test_errors_in_a_locked_process_are_ordinary_python_errors(threads, outcome):
    assert result_of(run_child(behaviour.work, threads=threads)) == {
        "memory": "MemoryError",
        "thread": outcome,
        "traceback": "ModuleNotFoundError: No module named 'wave'",
    }


def test_an_existing_thread_is_filtered_and_reported_as_outside_the_other_layers():
    assert result_of(run_child(behaviour.lock_beside_a_thread, mode="auto")) == [["privileges", "landlock"], 1]
    [message, _] = result_of(run_child(behaviour.lock_beside_a_thread, mode="require"))
    assert "privileges (other threads already run), landlock (other threads already run)" in message


def test_without_a_sandbox_only_resources_are_limited():
    assert result_of(run_child(behaviour.open_after_locking, mode="off")) == [[], "opened", MEMORY_BYTES]


def test_a_locked_process_dies_with_its_parent():
    ours, childs = os.pipe()
    run_child(behaviour.leave_child, descriptors=(childs,), descriptor=childs)
    os.close(childs)

    assert select.select([ours], [], [], 20)[0], "the process that has the other end still lives"
    os.close(ours)


def test_querying_the_layers_changes_nothing():
    def status():
        lines = Path("/proc/self/status").read_text().splitlines()
        return [line for line in lines if line.startswith(("Cap", "Uid", "NoNewPrivs", "Seccomp"))]

    before = status()

    assert all(protection.is_available and not protection.advice for protection in probe())
    check_mode("require")
    assert status() == before


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
def test_features_that_a_container_or_kernel_lacks_are_named(refused, number, name, detail, advice):
    arguments = {"refused": refused, "number": number}

    [found], refusal, missing = result_of(run_child(behaviour.lock_under_filter, **arguments, mode="auto"))

    assert found[:3] == [name, False, detail]
    assert found[3].startswith(advice)
    assert (refusal, missing) == (None, [name])

    _, refusal, in_child = result_of(run_child(behaviour.lock_under_filter, **arguments, mode="require"))

    assert refusal == (
        f"Decoding processes cannot be locked, as extract.sandbox requires: {detail}; {found[3]}, "
        "or set extract.sandbox to auto."
    )
    assert in_child == (
        f"The decoding process cannot be locked: {name} ({os.strerror(number)}); set extract.sandbox to auto."
    )


@pytest.mark.parametrize(
    ("abi", "denied", "masks"),
    [
        (1, "files", [0x1FFF]),
        (2, "files", [0x3FFF]),
        (3, "files", [0x7FFF]),
        (4, "files, TCP", [0x7FFF, 3]),
        (5, "files, TCP", [0xFFFF, 3]),
        (6, "files, TCP, abstract sockets, signals", [0xFFFF, 3, 3]),
        (9, "files, TCP, abstract sockets, signals", [0xFFFF, 3, 3]),
    ],
)
def test_landlock_denies_what_a_kernel_of_its_version_can(abi, denied, masks):
    assert linux.describe_abi(abi) == f"Landlock ABI {abi} ({denied})"
    assert [*linux._rights(abi).values()] == masks


def test_an_unsupported_architecture_is_named():
    script = (
        "import ctypes; ctypes.CDLL(None).personality(8)\n"  # what `setarch linux32` does
        "import json; from dataclasses import astuple; from reelabel.sandbox import enter_sandbox, probe\n"
        f"print(json.dumps([astuple(probe()[-1]), enter_sandbox('auto', memory_bytes={MEMORY_BYTES})]))"
    )
    path = os.pathsep.join(sys.path)
    completed = subprocess.run(
        [sys.executable, "-c", script], env={"PYTHONPATH": path}, capture_output=True, check=True
    )

    [name, is_available, detail, advice], missing = json.loads(completed.stdout)

    assert (name, is_available, missing) == ("seccomp", False, ["seccomp"])
    assert detail.endswith("are unknown")
    assert advice == f"use a machine with {' or '.join(ARCHITECTURES)}"
