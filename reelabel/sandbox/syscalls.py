"""Numbers of system calls, from the kernel's asm/unistd_64.h (x86-64) and asm-generic/unistd.h (AArch64)."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

# On x86-64 and AArch64; None: the C library makes another call there.
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
