"""Hostile code in a locked process: what it tries, and what stops it."""

import os
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.reelabel.sandbox import attacks
from tests.reelabel.sandbox.attacks import REFUSED, STOPPED_BY, try_attacks
from tests.reelabel.sandbox.child import USER, result_of, run_child

IS_ROOT = os.geteuid() == 0
# A process that others of its user may trace, even if the kernel has Yama.
VICTIM = """
import ctypes, sys
from tests.reelabel.sandbox.child import become
become(int(sys.argv[1]))
ctypes.CDLL(None).prctl(0x59616D61, -1)
print(flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module", params=["root", "user"] if IS_ROOT else ["user"])
def scene(request):
    """Set up what there is to be attacked, as a child of one user sees it."""
    user = USER if IS_ROOT and request.param == "user" else os.getuid()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/tmp")))
        secret = folder / "secret"
        secret.write_text("password")
        if IS_ROOT:
            os.chown(folder, user, user)
            os.chown(secret, user, user)
        name = f"reelabel-{folder.name}"
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        for kind, address in (
            (socket.SOCK_STREAM, f"\0{name}-stream"),
            (socket.SOCK_DGRAM, f"\0{name}-datagram"),
            (socket.SOCK_STREAM, f"{folder}/socket"),
        ):
            unix = stack.enter_context(socket.socket(socket.AF_UNIX, kind))
            unix.bind(address)
            if kind == socket.SOCK_STREAM:
                unix.listen()
        (folder / "socket").chmod(0o777)
        victim = stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-P", "-c", VICTIM, str(user)],
                env={"PYTHONPATH": os.pathsep.join(sys.path)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        )
        victim.stdout.readline()
        yield {
            "user": user,
            "scene": {
                "secret": str(secret),
                "folder": str(folder),
                "port": tcp.getsockname()[1],
                "name": name,
                "victim": victim.pid,
            },
        }
        victim.kill()


def stopped(scene, layer):
    results = result_of(run_child(try_attacks, layer=layer, **scene))
    return {name for name, result in results.items() if result != "succeeded"}, results


def expected(layer):
    return {attack.__name__ for attack, layers in STOPPED_BY.items() if layer in layers}


def test_a_locked_process_is_powerless(scene):
    _, results = stopped(scene, "all")

    assert {name for name, result in results.items() if result == "succeeded"} == set()
    assert {results[name] for name in REFUSED} == {"EPERM"}


def test_without_a_sandbox_the_attacks_succeed(scene):
    failed, _ = stopped(scene, "none")

    assert failed - REFUSED.keys() == (expected(attacks.USER) if scene["user"] else set())


@pytest.mark.parametrize("layer", [attacks.LIMITS, attacks.LANDLOCK, attacks.SECCOMP])
def test_each_layer_alone_stops_the_attacks_it_is_for(scene, layer):
    failed, results = stopped(scene, layer)

    if scene["user"]:
        assert failed - REFUSED.keys() == expected(layer) | expected(attacks.USER)
    else:  # root has also become nobody
        assert failed >= expected(layer) - {attacks.raise_limit.__name__}, results
