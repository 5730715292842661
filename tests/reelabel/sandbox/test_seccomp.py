"""The filter's decisions on each architecture, found by interpreting its instructions."""

import errno
import fcntl
import os
import struct

import pytest

from reelabel.sandbox import seccomp
from reelabel.sandbox.seccomp import ARCHITECTURES

ALLOW, KILL, EPERM, ENOSYS = 0x7FFF0000, 0x80000000, 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS
THREAD = 0x3D0F00
# Numbers from the kernel's headers: x86-64, AArch64.
CALLS = {
    "read": (0, 63),
    "futex": (202, 98),
    "openat": (257, 56),
    "execve": (59, 221),
    "socket": (41, 198),
    "connect": (42, 203),
    "clone": (56, 220),
    "clone3": (435, 435),
    "mmap": (9, 222),
    "mprotect": (10, 226),
    "fcntl": (72, 25),
    "sendto": (44, 206),
    "tgkill": (234, 131),
    "kill": (62, 129),
    "prlimit64": (302, 261),
    "memfd_create": (319, 279),
    "ioctl": (16, 29),
}
# Those that are allowed if all arguments are 0, also mmap, mprotect, memfd_create, sendto and prlimit64.
PLAIN = {
    "x86_64": {
        *(0, 1, 3, 7, 8, 9, 10, 11, 12, 13, 14, 15, 17, 18, 19, 20, 24, 25, 28, 33, 35, 39, 44, 45, 46, 47, 60, 77, 96),
        *(98, 99, 131, 186, 201, 202, 204, 219, 228, 229, 230, 231, 271, 273, 285, 292, 295, 302, 309, 318, 319, 334),
    },
    "aarch64": {
        *(24, 46, 47, 57, 62, 63, 64, 65, 66, 67, 68, 69, 73, 93, 94, 98, 99, 101, 113, 114, 115, 123, 124, 128, 132),
        *(134, 135, 139, 165, 168, 169, 172, 178, 179, 206, 207, 211, 212, 214, 215, 216, 222, 226, 233, 261, 278, 279),
        *(293,),
    },
}


def decide(program, architecture, number, arguments):
    data = struct.pack("=IIQ6Q", number, architecture, 0, *arguments, *[0] * (6 - len(arguments)))
    position = value = 0
    while True:
        code, if_true, if_false, constant = program[position]
        position += 1
        if code == 0x20:
            (value,) = struct.unpack_from("=I", data, constant)
        elif code == 0x54:
            value &= constant
        elif code == 0x15:
            position += if_true if value == constant else if_false
        elif code == 0x45:
            position += if_true if value & constant else if_false
        else:
            assert code == 0x06
            return constant


@pytest.mark.parametrize("column", [0, 1], ids=list(ARCHITECTURES))
@pytest.mark.parametrize(
    ("call", "arguments", "decision"),
    [
        ("read", (), ALLOW),
        ("futex", (), ALLOW),
        ("openat", (), EPERM),
        ("execve", (), EPERM),
        ("socket", (), EPERM),
        ("connect", (), EPERM),
        ("kill", (os.getpid(), 0), EPERM),
        ("ioctl", (), EPERM),
        ("clone", (THREAD,), ALLOW),
        ("clone", (THREAD | 0x400000,), ALLOW),
        ("clone", (17,), EPERM),
        ("clone", (THREAD | 0x10000000,), EPERM),
        ("clone3", (), ENOSYS),
        ("mmap", (0, 4096, 3), ALLOW),
        ("mmap", (0, 4096, 5), EPERM),
        ("mprotect", (0, 4096, 3), ALLOW),
        ("mprotect", (0, 4096, 4), EPERM),
        ("fcntl", (3, fcntl.F_GETFD), ALLOW),
        ("fcntl", (3, 1033), ALLOW),
        ("fcntl", (3, fcntl.F_SETOWN), EPERM),
        ("fcntl", (3, fcntl.F_SETFL), EPERM),
        ("sendto", (3, 1, 1, 0, 0), ALLOW),
        ("sendto", (3, 1, 1, 0, 1), EPERM),
        ("sendto", (3, 1, 1, 0, 1 << 32), EPERM),
        ("tgkill", (os.getpid(), 1), ALLOW),
        ("tgkill", (os.getppid(), 1), EPERM),
        ("prlimit64", (0, 9, 0), ALLOW),
        ("prlimit64", (0, 9, 1 << 32), EPERM),
        ("prlimit64", (1, 9, 0), EPERM),
        ("memfd_create", (0, 3), ALLOW),
        ("memfd_create", (0, 7), EPERM),
    ],
)
def test_both_filters_decide_each_call_equally(monkeypatch, column, call, arguments, decision):
    name, architecture = list(ARCHITECTURES.items())[column]
    monkeypatch.setattr(seccomp, "ARCHITECTURE", name)
    program = list(seccomp._program(threads=True))

    assert decide(program, architecture, CALLS[call][column], arguments) == decision
    assert decide(program, 0x40000003, CALLS[call][column], arguments) == KILL


@pytest.mark.parametrize("column", [0, 1], ids=list(ARCHITECTURES))
def test_a_process_that_decodes_without_threads_cannot_start_any(monkeypatch, column):
    name, architecture = list(ARCHITECTURES.items())[column]
    monkeypatch.setattr(seccomp, "ARCHITECTURE", name)
    program = list(seccomp._program(threads=False))

    for call in ("clone", "clone3"):
        assert decide(program, architecture, CALLS[call][column], (THREAD,)) == EPERM


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_no_other_calls_are_allowed_than_those_that_decoding_needs(monkeypatch, name):
    monkeypatch.setattr(seccomp, "ARCHITECTURE", name)
    program = list(seccomp._program(threads=True))

    decisions = {number: decide(program, ARCHITECTURES[name], number, ()) for number in range(600)}

    assert {number for number, decision in decisions.items() if decision == ALLOW} == PLAIN[name]
    assert {number for number, decision in decisions.items() if decision == ENOSYS} == {CALLS["clone3"][0]}
