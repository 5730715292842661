"""What children do once they are locked, or instead of being locked; imported by them, so it imports little."""

import ctypes
import importlib
import mmap
import os
import resource
import socket
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple
from pathlib import Path

from reelabel.errors import SandboxUnavailableError
from reelabel.sandbox import check_mode, probe
from reelabel.sandbox.linux import capget, capset, prctl
from tests.reelabel.sandbox.child import LAYERS, MEMORY_BYTES, become, lock, refuse, run_child


def privileges_of(*, user=0, without_kill=False):
    become(user)
    if without_kill:
        header, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
        capget(header, sets)
        sets[0] &= ~(1 << 5)
        capset(header, sets)
    LAYERS["privileges"]()
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {name: value.strip() for name, value in status.items()} | {"Dumpable": prctl(3)}


def limits_of():
    missing = lock()
    names = ("RLIMIT_AS", "RLIMIT_FSIZE", "RLIMIT_NOFILE", "RLIMIT_CORE")
    return {"missing": missing} | {name: resource.getrlimit(getattr(resource, name)) for name in names}


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


def enter_32_bit_code(*, is_locked):
    """Make system call 20, getpid to 32-bit code and writev to 64-bit code, by the interrupt of 32-bit code."""
    code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(bytes.fromhex("b814000000 cd80 c3"))
    function = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
    if is_locked:
        lock()
    return function() == os.getpid()


def work(*, threads):
    """Do what a decoding process needs besides decoding."""
    lock(threads=threads)
    done = {}
    try:
        bytearray(MEMORY_BYTES)
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
