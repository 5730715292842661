"""Landlock: no path can be opened, no TCP port used, no other process signalled. See landlock(7).

The rules apply to the calling thread and those that it starts later, not to threads that already run.
"""

from __future__ import annotations

import ctypes
import os
import struct
from typing import Final

from reelabel.sandbox.kernel import system_call

# The same numbers on all architectures; constants from linux/landlock.h.
_CREATE_RULESET: Final = 444
_RESTRICT_SELF: Final = 446
_RULESET_VERSION: Final = 1
# Versions of the interface (ABI), and the rights on files that exist since then, as a mask.
_FILES: Final = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
_NETWORK_ABI: Final = 4
_SCOPE_ABI: Final = 6
_BIND_AND_CONNECT_TCP: Final = 0b11
_ABSTRACT_SOCKETS_AND_SIGNALS: Final = 0b11


def landlock_abi() -> int:
    """Return the version of the kernel's interface, at least 1.

    Raises:
        OSError: The kernel has no Landlock, it is disabled, or the container refuses it.
    """
    return system_call(_CREATE_RULESET, None, 0, _RULESET_VERSION)


def describe_abi(abi: int) -> str:
    """Return what a version of the interface can deny."""
    denies = ["files"]
    if abi >= _NETWORK_ABI:
        denies.append("TCP")
    if abi >= _SCOPE_ABI:
        denies += ["abstract sockets", "signals"]
    return f"Landlock ABI {abi} ({', '.join(denies)})"


def deny_paths_and_network() -> None:
    """Deny all that the kernel's version of Landlock can deny; open descriptors keep working.

    Raises:
        OSError: The kernel has no Landlock, it is disabled, or the container refuses it.
    """
    abi = landlock_abi()
    handled = [_FILES[max(known for known in _FILES if known <= abi)]]
    if abi >= _NETWORK_ABI:
        handled.append(_BIND_AND_CONNECT_TCP)
    if abi >= _SCOPE_ABI:
        handled.append(_ABSTRACT_SOCKETS_AND_SIGNALS)
    # struct landlock_ruleset_attr has grown with the ABI. Whatever is handled and has no rule is denied.
    attributes = struct.pack(f"={len(handled)}Q", *handled)
    ruleset = system_call(_CREATE_RULESET, ctypes.c_char_p(attributes), len(attributes), 0)
    try:
        system_call(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)
