"""A seccomp filter: decoding needs few system calls, and all others fail with EPERM. See seccomp(2).

The filter is a classic BPF program that looks at the number of a system call and at the low halves of its arguments.
It covers all threads of the process, including those that already run.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import struct
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from reelabel.sandbox.linux import ARCHITECTURE, system_call

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# Constants from linux/seccomp.h, linux/audit.h, linux/filter.h, linux/sched.h and linux/mman.h.
_SET_MODE_FILTER: Final = 1
_GET_ACTION_AVAIL: Final = 2
_TSYNC: Final = 1
_KILL_PROCESS: Final = 0x80000000
_ERRNO: Final = 0x00050000
_ALLOW: Final = 0x7FFF0000
_LOAD, _AND, _JUMP_IF_EQUAL, _JUMP_IF_SET, _RETURN = 0x20, 0x54, 0x15, 0x45, 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16  # in struct seccomp_data
_PROT_EXEC: Final = 4
_MFD_HUGETLB: Final = 4
_ADD_SEALS, _GET_SEALS = 1033, 1034  # fcntl.F_ADD_SEALS on every platform of this filter
# VM, FS, FILES, SIGHAND, THREAD, SYSVSEM, SETTLS, PARENT_SETTID and CHILD_CLEARTID: what pthread_create passes.
_THREAD_FLAGS: Final = 0x003D0F00
_DETACHED: Final = 0x00400000  # musl adds it; the kernel ignores it

# Most frequent ones first. None opens a path, makes a socket, or names another process.
_ALLOWED: Final = (
    *("futex", "read", "pread64", "lseek", "mremap", "munmap", "madvise", "brk", "write", "close"),
    *("readv", "preadv", "writev", "pwrite64", "ftruncate", "fallocate", "dup2", "dup3"),
    *("recvfrom", "recvmsg", "sendmsg", "poll", "ppoll"),
    *("clock_gettime", "clock_getres", "clock_nanosleep", "nanosleep", "gettimeofday", "time", "getcpu"),
    *("getpid", "gettid", "getrandom", "getrusage", "sysinfo", "sched_yield", "sched_getaffinity"),
    *("rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigaltstack", "restart_syscall"),
    *("set_robust_list", "rseq", "exit", "exit_group"),
)
# Not F_SETOWN, which makes the kernel send signals to other processes, nor F_SETFL, which changes the parent's files.
_FCNTL_COMMANDS: Final = (fcntl.F_GETFD, fcntl.F_SETFD, fcntl.F_DUPFD_CLOEXEC, _ADD_SEALS, _GET_SEALS)
ARCHITECTURES: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # AUDIT_ARCH_*, in the order of NUMBERS
_Instruction = tuple[int, int, int, int]  # code, jumps if true and if false, constant
# Numbers on x86-64 and AArch64, from the kernel's asm/unistd_64.h and asm-generic/unistd.h; None: the C library makes
# another call there.
NUMBERS: Final[Mapping[str, tuple[int, int | None]]] = MappingProxyType(
    {
        "brk": (12, 214),
        "clock_getres": (229, 114),
        "clock_gettime": (228, 113),
        "clock_nanosleep": (230, 115),
        "clone": (56, 220),
        "clone3": (435, 435),
        "close": (3, 57),
        "dup2": (33, None),
        "dup3": (292, 24),
        "exit": (60, 93),
        "exit_group": (231, 94),
        "fallocate": (285, 47),
        "fcntl": (72, 25),
        "ftruncate": (77, 46),
        "futex": (202, 98),
        "getcpu": (309, 168),
        "getpid": (39, 172),
        "getrandom": (318, 278),
        "getrusage": (98, 165),
        "gettid": (186, 178),
        "gettimeofday": (96, 169),
        "lseek": (8, 62),
        "madvise": (28, 233),
        "memfd_create": (319, 279),
        "mmap": (9, 222),
        "mprotect": (10, 226),
        "mremap": (25, 216),
        "munmap": (11, 215),
        "nanosleep": (35, 101),
        "poll": (7, None),
        "ppoll": (271, 73),
        "pread64": (17, 67),
        "preadv": (295, 69),
        "prlimit64": (302, 261),
        "pwrite64": (18, 68),
        "read": (0, 63),
        "readv": (19, 65),
        "recvfrom": (45, 207),
        "recvmsg": (47, 212),
        "restart_syscall": (219, 128),
        "rseq": (334, 293),
        "rt_sigaction": (13, 134),
        "rt_sigprocmask": (14, 135),
        "rt_sigreturn": (15, 139),
        "sched_getaffinity": (204, 123),
        "sched_yield": (24, 124),
        "seccomp": (317, 277),
        "sendmsg": (46, 211),
        "sendto": (44, 206),
        "set_robust_list": (273, 99),
        "sigaltstack": (131, 132),
        "sysinfo": (99, 179),
        "tgkill": (234, 131),
        "time": (201, None),
        "write": (1, 64),
        "writev": (20, 66),
    }
)


def is_filter_available() -> bool:
    """Return whether this machine's architecture is known, and the kernel and the container allow a filter."""
    if ARCHITECTURE not in ARCHITECTURES:
        return False
    try:
        system_call(_number("seccomp"), _GET_ACTION_AVAIL, 0, ctypes.byref(ctypes.c_uint32(_ERRNO)))
    except OSError:
        return False
    return True


def apply_seccomp(*, threads: bool) -> None:
    """Install the filter for all threads, or raise OSError; new ones may be started only if `threads`."""
    if ARCHITECTURE not in ARCHITECTURES:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    program = b"".join(struct.pack("=HBBI", *instruction) for instruction in _program(threads=threads))
    code = ctypes.create_string_buffer(program, len(program))
    # struct sock_fprog: the number of instructions, and their address.
    header = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
    if system_call(_number("seccomp"), _SET_MODE_FILTER, _TSYNC, ctypes.c_char_p(header)):
        raise OSError(errno.ESRCH, "another thread has a filter of its own")


def _program(*, threads: bool) -> Iterator[_Instruction]:
    yield (_LOAD, 0, 0, _ARCHITECTURE_AT)
    yield (_JUMP_IF_EQUAL, 1, 0, ARCHITECTURES[ARCHITECTURE])
    yield (_RETURN, 0, 0, _KILL_PROCESS)  # a system call of 32-bit code, whose numbers differ
    yield (_LOAD, 0, 0, _NUMBER_AT)
    for name in _ALLOWED:
        yield from _rule(name)
    # No new code: libraries cannot be loaded, and memory that was written cannot be executed.
    yield from _rule("mmap", _has_no_bit(2, _PROT_EXEC))
    yield from _rule("mprotect", _has_no_bit(2, _PROT_EXEC))
    yield from _rule("memfd_create", _has_no_bit(1, _MFD_HUGETLB))
    for command in _FCNTL_COMMANDS:
        yield from _rule("fcntl", _is(1, command))
    # The socket is connected; an address could only name another one.
    yield from _rule("sendto", _is(4, 0), _is(4, 0, high=True))
    # A thread may abort its own process.
    yield from _rule("tgkill", _is(0, os.getpid()))
    # The process's own limits, without new ones.
    yield from _rule("prlimit64", _is(0, 0), _is(2, 0), _is(2, 0, high=True))
    if threads:
        yield from _rule("clone", _is(0, _THREAD_FLAGS, ignored=_DETACHED))
        # The flags of clone3 are in memory, where no filter sees them. The C library then calls clone.
        yield from _rule("clone3", action=_ERRNO | errno.ENOSYS)
    yield (_RETURN, 0, 0, _ERRNO | errno.EPERM)


def _rule(name: str, *tests: list[_Instruction], action: int = _ALLOW) -> Iterator[_Instruction]:
    """Yield instructions that return `action` if all tests pass, and otherwise go on with the number loaded."""
    if NUMBERS[name][_column()] is None:
        return
    body = [instruction for test in tests for instruction in test]
    after = len(body) + 1
    yield (_JUMP_IF_EQUAL, 0, after + bool(tests), _number(name))
    for position, (code, if_true, if_false, constant) in enumerate(body, start=1):
        to_end = after - position  # where the number is loaded again
        yield (code, if_true * to_end, if_false * to_end, constant)
    yield (_RETURN, 0, 0, action)
    if tests:
        yield (_LOAD, 0, 0, _NUMBER_AT)


def _has_no_bit(argument: int, mask: int) -> list[_Instruction]:
    return [_load(argument), (_JUMP_IF_SET, 1, 0, mask)]


def _is(argument: int, value: int, *, ignored: int = 0, high: bool = False) -> list[_Instruction]:
    mask = [(_AND, 0, 0, ~ignored & 0xFFFFFFFF)] if ignored else []
    return [_load(argument, high=high), *mask, (_JUMP_IF_EQUAL, 0, 1, value)]


def _load(argument: int, *, high: bool = False) -> _Instruction:
    """Return an instruction that loads the low or high half of an argument; both architectures are little-endian."""
    return (_LOAD, 0, 0, _ARGUMENTS_AT + 8 * argument + 4 * high)


def _number(name: str) -> int:
    number = NUMBERS[name][_column()]
    assert number is not None
    return number


def _column() -> int:
    return list(ARCHITECTURES).index(ARCHITECTURE)
