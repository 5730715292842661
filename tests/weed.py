"""SeaweedFS with custom arguments; `infra.embedded` starts the embedded one."""

import subprocess
import time
from contextlib import contextmanager

from infra.embedded import s3_program
from infra.processes import free_ports
from reelabel.errors import ReelabelError, StoreUnavailableError


@contextmanager
def weed(arguments, folder):
    """Run `weed server` with its internal services on free ports and its log in `folder`."""
    # Left out, a port of gRPC is 10,000 above the other one, which may be taken, or beyond the last port.
    names = [f"{name}.port{kind}" for name in ("master", "volume", "filer") for kind in ("", ".grpc")] + [
        "s3.port.grpc"
    ]
    inner = [f"-{name}={port}" for name, port in zip(names, free_ports(len(names)), strict=True)]
    with (folder / "weed.log").open("wb") as log:
        server = subprocess.Popen([s3_program(), *arguments, *inner], stdout=log, stderr=log, cwd=folder)
    try:
        yield
    finally:
        server.kill()
        server.wait()


def wait_until_stored(objects, uri, data):
    """Create the bucket and write the object, retrying until the server is ready."""
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
