"""SeaweedFS started as a test wants it; the embedded one is started by `infra.embedded`."""

import subprocess
import time
from contextlib import contextmanager

from infra.embedded import s3_program
from infra.embedded.processes import free_port
from reelabel.errors import ReelabelError, StoreUnavailableError


@contextmanager
def weed(arguments, folder):
    """Run `weed server` with its inner parts on free ports, its log in `folder`."""
    inner = [f"-{name}.port={free_port()}" for name in ("master", "volume", "filer")]
    with (folder / "weed.log").open("wb") as log:
        server = subprocess.Popen([s3_program(), *arguments, *inner], stdout=log, stderr=log, cwd=folder)
    try:
        yield
    finally:
        server.kill()
        server.wait()


def wait_until_stored(objects, uri, data):
    """Make the bucket and write the object, as soon as the server does its work."""
    deadline_s = time.monotonic() + 30
    while True:
        try:
            objects.ensure_root(uri.rpartition("/")[0])
            objects.replace(uri, data)
        except (StoreUnavailableError, ReelabelError):
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.2)
        else:
            return
