"""A service that says in its log that a disk is full fails as such, whatever becomes of it."""

import asyncio
import os
import signal
import time

import pytest

from infra.embedded.home import Command, Home, ServiceName
from infra.embedded.supervisor import Supervisor
from reelabel.errors import DiskFullError


class Unready:
    """A service that never becomes ready."""

    name = ServiceName.PREFECT
    needs = ()
    stop_signal = signal.SIGTERM

    def __init__(self, script):
        self._script = script

    def launch(self, _port):
        return Command(command=["/bin/sh", "-c", self._script], environment=dict(os.environ))

    def is_ready(self, _port):
        return False

    def config_hash(self):
        return ""


async def _start(home, script):
    supervisor = Supervisor(home)
    try:
        await supervisor.ensure(Unready(script))
    finally:
        await supervisor.close()


@pytest.mark.parametrize(
    "script",
    [
        "echo 'DiskFullError: could not extend file: No space left on device'; echo '    ^^^^'; exit 1",
        "echo 'write /x: no space left on device'; sleep 60",
        "echo 'OSError: [Errno 122] Disk quota exceeded'; exit 1",
    ],
    ids=["ended", "goes on", "quota"],
)
def test_a_start_that_fails_for_lack_of_space_names_the_disk(tmp_path, script):
    home = Home(tmp_path / "home")
    begun_s = time.monotonic()

    with pytest.raises(DiskFullError, match=r"The disk of \S+ is full; free space"):
        asyncio.run(_start(home, script))

    assert time.monotonic() - begun_s < 30
