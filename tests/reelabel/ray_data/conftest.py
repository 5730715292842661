"""Videos on a web server of ours, and what prepares them."""

import secrets
import shutil
import tempfile
from contextlib import contextmanager

import pytest

from reelabel import PrepareVideo
from tests.clips import make_clip
from tests.reelabel.sources.web_server import serving

__all__ = ["make_clip"]

LOOK, WHOLE = "bytes=0-0", "bytes=0-"  # the ranges of a look at a video, and of its download
WEB = {"allow_private": True}
_TOKEN = secrets.token_hex(32)  # a process of Ray's reads it once, whatever it starts later


@contextmanager
def starting_ray(*, cpus):
    """Start a Ray that believes in so many CPUs."""
    import ray  # noqa: PLC0415 - takes seconds, also where tests that need it are left out

    with pytest.MonkeyPatch.context() as environment:
        # Without a token of ours Ray would write one into the home folder.
        environment.setenv("RAY_AUTH_TOKEN", _TOKEN)
        environment.setenv("RAY_USAGE_STATS_ENABLED", "0")
        environment.setenv("RAY_worker_niceness", "0")  # or other tests leave its processes no time
        folder = tempfile.mkdtemp(prefix="ray-")  # pytest's own are too long for the names of sockets
        ray.init(
            num_cpus=cpus,
            include_dashboard=False,
            log_to_driver=False,
            object_store_memory=100_000_000,
            _node_ip_address="127.0.0.1",
            _temp_dir=folder,
        )
        yield ray
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def server():
    with serving() as server:
        yield server


@pytest.fixture
def preparing():
    """Make objects that give four frames as an array, unless told otherwise, and end their processes."""
    prepares = []

    def prepare(**options):
        defaults = {"sampling": {"num_frames": 4}, "output_format": "numpy", "web": WEB}
        prepares.append(PrepareVideo(**defaults | options))
        return prepares[-1]

    yield prepare
    for one in prepares:
        one.close()
