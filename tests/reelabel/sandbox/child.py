"""Functions called in a process of their own, with no environment and no descriptors but those given."""

import ctypes
import json
import os
import struct
import subprocess
import sys

from reelabel.sandbox import enter_sandbox
from reelabel.sandbox.linux import ARCHITECTURE, apply_landlock, drop_privileges, prctl, system_call
from reelabel.sandbox.seccomp import apply_seccomp

MEMORY_BYTES = 2 * 1024**3
FILE_BYTES = 64 * 1024**2
DESCRIPTORS = 16
PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS = 4, 38
LANDLOCK_CREATE_RULESET, SECCOMP = 444, 317 if ARCHITECTURE == "x86_64" else 277
USER = 54321  # anyone but root
_BOOTSTRAP = """
import importlib, json, sys
sys.path[:] = json.loads(sys.argv[1])
module, name, arguments = json.loads(sys.argv[2])
print(json.dumps(getattr(importlib.import_module(module), name)(**arguments)), flush=True)
"""


def run_child(function, *, descriptors=(), **arguments):
    """Call a function of a test module in a new process; its result and arguments are JSON."""
    call = json.dumps([function.__module__, function.__qualname__, arguments])
    return subprocess.run(
        [sys.executable, "-P", "-c", _BOOTSTRAP, json.dumps(sys.path), call],
        env={"OPENBLAS_NUM_THREADS": "1"},  # NumPy would start threads
        pass_fds=descriptors,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def result_of(done):
    """Return what the function returned."""
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def become(user):
    """Become another user for good, if told to."""
    if user and os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
        prctl(PR_SET_DUMPABLE, 1)  # as if it had always been that user


def lock(*, threads=2, mode="require", **options):
    """Lock this process as a decoding process does."""
    return enter_sandbox(
        mode, memory_bytes=MEMORY_BYTES, threads=threads, file_bytes=FILE_BYTES, descriptors=DESCRIPTORS, **options
    )


def refuse(number, error):
    """Let a system call fail with an error, as the profile of a container or an old kernel does."""
    program = struct.pack("=HBBI", 0x20, 0, 0, 0)  # load the number
    program += struct.pack("=HBBI", 0x15, 0, 1, number)  # if it is this one
    program += struct.pack("=HBBI", 0x06, 0, 0, 0x00050000 | error)
    program += struct.pack("=HBBI", 0x06, 0, 0, 0x7FFF0000)
    code = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    system_call(SECCOMP, 1, 0, ctypes.c_char_p(header))


# Each layer alone, to see what it stops by itself.
LAYERS = {
    "none": lambda: None,
    "limits": lambda: lock(mode="off"),
    "privileges": drop_privileges,
    "landlock": lambda: (drop_privileges(), apply_landlock()),
    "seccomp": lambda: (drop_privileges(), apply_seccomp(threads=True)),
    "all": lock,
}
