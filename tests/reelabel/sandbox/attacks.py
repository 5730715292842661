"""What hostile code tries in a decoding process: an attack returns if it succeeds, and raises OSError if stopped."""

import ctypes
import errno
import fcntl
import mmap
import os
import resource
import signal
import socket
import struct
from contextlib import ExitStack, suppress
from pathlib import Path

from reelabel.sandbox.linux import ARCHITECTURE, landlock_abi, system_call
from tests.reelabel.sandbox.child import FILE_BYTES, LAYERS, MEMORY_BYTES, become

X86_64 = ARCHITECTURE == "x86_64"
CLONE, CLONE3, FSTATAT, MPROTECT = (56, 435, 262, 10) if X86_64 else (220, 435, 79, 226)
PTRACE, PROCESS_VM_READV, PRLIMIT64 = (101, 310, 302) if X86_64 else (117, 270, 261)
PIDFD_OPEN = 434
PTRACE_SEIZE = 0x4206
CLONE_NEWUSER = 0x10000000
LIBRARY = "libanl.so.1"  # part of the C library, and loaded by nobody
LIMITS, LANDLOCK, SECCOMP = "limits", "landlock", "seccomp"
LANDLOCK_4, LANDLOCK_6 = (LANDLOCK if landlock_abi() >= abi else "" for abi in (4, 6))
USER = "user"  # any user but root


def try_attacks(*, layer, user, scene):
    """Apply one layer, and return what became of each attack."""
    become(user)
    before = Scene(scene)
    LAYERS[layer]()
    attacks = {attack.__name__: attack for attack in STOPPED_BY} | REFUSED
    return {name: outcome(attack, before) for name, attack in attacks.items()}


def outcome(attack, scene):
    """Return the error that stopped an attack, or that it succeeded."""
    try:
        attack(scene)
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error)) if error.errno else str(error)
    except MemoryError:
        return "MemoryError"
    return "succeeded"


class Scene:
    """What is there to be attacked."""

    def __init__(self, scene):
        self.secret = Path(scene["secret"])
        self.folder = Path(scene["folder"])
        self.port = scene["port"]
        self.stream, self.datagram = (f"\0{scene['name']}-{kind}" for kind in ("stream", "datagram"))
        self.unix = f"{scene['folder']}/socket"
        self.victim = scene["victim"]
        self.datagrams, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.page = mmap.mmap(-1, mmap.PAGESIZE)
        self.memory = (ctypes.c_char * mmap.PAGESIZE).from_buffer(self.page)


def in_fork(attempt):
    """Attempt something that ends the process, in a child if one can be forked."""
    try:
        child = os.fork()
    except OSError:
        attempt()
        return
    if child == 0:
        try:
            attempt()
        except OSError as error:
            os._exit(error.errno)
        os._exit(0)
    raise_errno(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def end_child(child):
    if child == 0:
        os._exit(0)
    with suppress(OSError):  # that it cannot be waited for does not make it stopped
        os.waitpid(child, 0)


def raise_errno(number):
    if number:
        raise OSError(number, os.strerror(number))


def read_secret(scene):
    scene.secret.read_bytes()


def read_own_environment(_):
    Path("/proc/self/environ").read_bytes()


def list_folder(scene):
    list(scene.folder.iterdir())


def stat_path(scene):
    system_call(FSTATAT, -100, ctypes.c_char_p(bytes(scene.secret)), ctypes.create_string_buffer(256), 0)


def write_file(scene):
    (scene.folder / f"written-{os.getpid()}").touch()


def change_mode(scene):
    scene.secret.chmod(0o644)


def connect_tcp(scene):
    with socket.socket() as tcp:
        tcp.connect(("127.0.0.1", scene.port))


def send_udp(scene):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.sendto(b"x", ("127.0.0.1", scene.port))


def connect_abstract_socket(scene):
    with socket.socket(socket.AF_UNIX) as unix:
        unix.connect(scene.stream)


def connect_unix_socket(scene):
    with socket.socket(socket.AF_UNIX) as unix:
        unix.connect(scene.unix)


def send_datagram_from_open_socket(scene):
    scene.datagrams.sendto(b"x", scene.datagram)


def execute(_):
    in_fork(lambda: os.execv("/bin/true", ["true"]))


def fork(_):
    end_child(os.fork())


def raw_clone(_):
    end_child(system_call(CLONE, signal.SIGCHLD, 0, 0, 0, 0))


def raw_clone3(_):
    arguments = struct.pack("=8Q", 0, 0, 0, 0, signal.SIGCHLD, 0, 0, 0)
    end_child(system_call(CLONE3, ctypes.c_char_p(arguments), len(arguments)))


def kill_victim(scene):
    os.kill(scene.victim, 0)


def signal_victim_by_owner(scene):
    fcntl.fcntl(scene.datagrams, fcntl.F_SETOWN, scene.victim)


def trace_victim(scene):
    in_fork(lambda: system_call(PTRACE, PTRACE_SEIZE, scene.victim, 0, 0))


def read_victims_memory(scene):
    # The victim's address is unknown, so that EFAULT means that it may be read.
    local = struct.pack("@PN", ctypes.addressof(scene.memory), 8)
    remote = struct.pack("@PN", 8, 8)
    pointers = [ctypes.c_char_p(local), 1, ctypes.c_char_p(remote), 1]
    try:
        system_call(PROCESS_VM_READV, scene.victim, *pointers, 0)
    except OSError as error:
        if error.errno != errno.EFAULT:
            raise


def limit_victim(scene):
    resource.prlimit(scene.victim, resource.RLIMIT_CORE)


def open_victim(scene):
    os.close(system_call(PIDFD_OPEN, scene.victim, 0))


def allocate_memory(_):
    mmap.mmap(-1, MEMORY_BYTES).close()


def fill_memfd(_):
    file = os.memfd_create("x")
    try:
        os.ftruncate(file, FILE_BYTES + 1)
    finally:
        os.close(file)


def open_many_descriptors(scene):
    with ExitStack() as stack:
        for _ in range(64):
            stack.callback(os.close, fcntl.fcntl(scene.datagrams, fcntl.F_DUPFD_CLOEXEC, 0))


def raise_limit(_):
    infinite = struct.pack("=QQ", 2**64 - 1, 2**64 - 1)
    system_call(PRLIMIT64, 0, resource.RLIMIT_AS, ctypes.c_char_p(infinite), None)


def become_root(_):
    in_fork(lambda: os.setresuid(0, 0, 0))


def load_library(_):
    ctypes.CDLL(LIBRARY)


def map_executable(_):
    mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC).close()


def make_executable(scene):
    system_call(MPROTECT, ctypes.addressof(scene.memory), mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_EXEC)


def reach(number, *arguments):
    """Return an attack that makes a system call with nonsense: any error but EPERM comes from the code behind it."""

    def attack(_):
        try:
            system_call(number, *arguments)
        except OSError as error:
            if error.errno == errno.EPERM:
                raise

    return attack


# The attacks, and the layers that stop them by themselves; all of them do so together.
STOPPED_BY = {
    read_secret: {LANDLOCK, SECCOMP},
    read_own_environment: {LANDLOCK, SECCOMP},
    list_folder: {LANDLOCK, SECCOMP},
    write_file: {LANDLOCK, SECCOMP},
    stat_path: {SECCOMP},
    change_mode: {SECCOMP},
    connect_tcp: {LANDLOCK_4, SECCOMP},
    connect_abstract_socket: {LANDLOCK_6, SECCOMP},
    connect_unix_socket: {SECCOMP},
    send_udp: {SECCOMP},
    send_datagram_from_open_socket: {LANDLOCK_6, SECCOMP},
    execute: {LANDLOCK, SECCOMP},
    fork: {SECCOMP},
    raw_clone: {SECCOMP},
    raw_clone3: {SECCOMP},
    kill_victim: {LANDLOCK_6, SECCOMP},
    signal_victim_by_owner: {SECCOMP},
    trace_victim: {LANDLOCK, SECCOMP},
    read_victims_memory: {LANDLOCK, SECCOMP},
    limit_victim: {SECCOMP},
    open_victim: {SECCOMP},
    allocate_memory: {LIMITS},
    fill_memfd: {LIMITS},
    open_many_descriptors: {LIMITS},
    raise_limit: {LIMITS, SECCOMP},
    become_root: {USER, SECCOMP},
    load_library: {LANDLOCK, SECCOMP},
    map_executable: {SECCOMP},
    make_executable: {SECCOMP},
}
# Parts of the kernel that have often been attacked. Many machines refuse them anyway.
REFUSED = {
    "io_uring_setup": reach(425, 1, None),
    "unshare": reach(272 if X86_64 else 97, CLONE_NEWUSER),
    "setns": reach(308 if X86_64 else 268, -1, 0),
    "perf_event_open": reach(298 if X86_64 else 241, None, 0, -1, -1, 0),
    "bpf": reach(321 if X86_64 else 280, 0, None, 0),
    "userfaultfd": reach(323 if X86_64 else 282, 1),
    "keyctl": reach(250 if X86_64 else 219, 0, -4, 1),
    "mount": reach(165 if X86_64 else 40, None, None, None, 0, None),
    "ioctl": reach(16 if X86_64 else 29, 0, 0, 0),
    "open_by_handle_at": reach(304 if X86_64 else 265, -1, None, 0),
    "inotify_init1": reach(294 if X86_64 else 26, 0),
    "socketpair": reach(53 if X86_64 else 199, 0, 0, 0, None),
    "prctl": reach(157 if X86_64 else 167, 15, b"x", 0, 0, 0),
    "x32": reach(0x40000000 + 39),
}
