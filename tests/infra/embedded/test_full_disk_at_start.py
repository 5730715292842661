"""A service that says in its log that a disk is full fails as such, whatever becomes of it."""

import os
import signal
import threading
import time

import pytest

from infra.embedded.home import Home, ServiceName
from infra.embedded.lifecycle import end_service, ensure_started
from infra.embedded.service import Launch
from reelabel.errors import DiskFullError


class Unready:
    """A service that never becomes ready."""

    name = ServiceName.PREFECT
    stop_signal = signal.SIGTERM

    def __init__(self, script):
        self._script = script

    def launch(self, _port):
        return Launch(command=["/bin/sh", "-c", self._script], environment=dict(os.environ))

    def is_ready(self, _port):
        return False

    def label(self):
        return ""


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

    with pytest.raises(DiskFullError, match=r"The disk of \S+ was full \(.* MiB free by now\); free space"):
        ensure_started(Unready(script), home, threading.Event())

    assert time.monotonic() - begun_s < 30
    end_service(ServiceName.PREFECT, home, signal.SIGKILL)
