"""Videos for a pool of one process, and what is extracted of them."""

import pytest

from infra.settings import StoreSettings
from reelabel.options import Limits
from reelabel.pool.decode_pool import DecodePool
from reelabel.sampling.options import Sampling
from reelabel.sources.object_store import ObjectStore
from reelabel.sources.source import StoredSource

WANTED = {"sampling": Sampling(num_frames=4), "limits": Limits()}
# Enough bytes that ranges of it are worth reading.
LONG = {"size": (160, 120), "frames": 240, "gop": 24, "qp": "1", "preset": "ultrafast"}


@pytest.fixture(scope="module")
def pool():
    with DecodePool(processes=1, timeout_s=10, memory_mib=2048, threads=2) as pool:
        yield pool


def remote(path):
    objects = ObjectStore(StoreSettings())
    return StoredSource(objects, objects.stat(str(path)))
