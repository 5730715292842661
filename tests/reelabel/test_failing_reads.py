"""A remote file whose reads fail: only the failure itself is reported."""

from contextlib import suppress

import pytest

from benchmarks.media.matrix import Cell
from reelabel.errors import FallbackRequired
from reelabel.extract import extract_ranges
from reelabel.options import Limits
from reelabel.sampling.options import Sampling
from reelabel.segment import Segment

CELLS = [Cell("avi", "h264", "b-frames-h264"), Cell("mkv", "h264"), Cell("mp4", "h264"), Cell("webm", "vp9")]


class Store:
    """A source that answers so many reads, then fails."""

    max_wait_s = 10.0

    def __init__(self, data, reads):
        self.data, self.left, self.size_bytes = data, reads, len(data)

    def read(self, start, size):
        self.left -= 1
        if self.left < 0:
            raise ConnectionError("the store is gone")
        return self.data[start : start + size]


@pytest.mark.parametrize("sampler", ["keyframes", "uniform"])
@pytest.mark.parametrize("reads", range(5))
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_a_failed_read_prints_no_traceback(cell, reads, sampler, capfd):
    store, segment = Store(cell.make(), reads), Segment(0.5, 1.0)

    with suppress(ConnectionError, FallbackRequired):
        extract_ranges(store, sampling=Sampling(sampler=sampler), limits=Limits(), segment=segment)

    assert capfd.readouterr() == ("", "")
