import pytest

from reelabel.pool.decode_pool import DecodePool


@pytest.fixture(scope="package")
def pool():
    with DecodePool(processes=1, timeout_s=20, memory_mib=2048) as pool:
        yield pool
