"""What a pool reads for a decoding process: each byte once at most, and nothing beyond the video."""

import threading

import pytest

from reelabel.errors import InvalidReplyError, StoreUnavailableError
from reelabel.pool.process import RangeReader
from reelabel.sources.sparse_file import BLOCK_BYTES, MAX_CONCURRENT_READS, CachedRange

DATA = bytes(range(100))


class Source:
    """A video in memory."""

    max_wait_s = 60.0

    def __init__(self, data=DATA):
        self.data, self.size_bytes, self.reads = data, len(data), []

    def read(self, start, size):
        self.reads.append((start, size))
        return self.data[start : start + size]


def read(reader, *spans):
    batch = reader.start(spans)
    got = []
    for number in range(len(spans)):
        assert batch.wait(number, 60)
        got.append(reader.take(batch, number))
    return got


def test_ranges_come_in_the_order_asked_for_and_those_of_the_header_are_kept():
    reader = RangeReader(Source())

    first = read(reader, (90, 10), (0, 5))
    reader.is_in_header = False
    second = read(reader, (50, 2))

    assert (first, second) == ([DATA[90:], DATA[:5]], [DATA[50:52]])
    assert reader.header == [CachedRange(90, DATA[90:]), CachedRange(0, DATA[:5])]
    assert reader.bytes_fetched == 17
    assert reader.failure is None


def test_the_whole_video_may_be_read_once():
    reader = RangeReader(Source())

    assert read(reader, (0, 60), (60, 40)) == [DATA[:60], DATA[60:]]
    with pytest.raises(InvalidReplyError, match="more often than it has bytes"):
        reader.start([(0, 1)])


def test_no_more_is_read_at_once_than_a_sparse_file_fetches():
    source = Source(b"")
    source.size_bytes = 4 * 1024**3

    with pytest.raises(InvalidReplyError):
        RangeReader(source).start([(start, 4 * 1024**2) for start in range(0, source.size_bytes, 4 * 1024**2)])
    assert source.reads == []


@pytest.mark.parametrize("spans", [[(91, 10)], [(0, 50), (50, 51)], [(0, 1), (1000, 1)]])
def test_nothing_is_read_beyond_the_video(spans):
    source = Source()

    with pytest.raises(InvalidReplyError, match="reads outside the video"):
        RangeReader(source).start(spans)
    assert source.reads == []


def test_reads_are_limited_in_number_by_the_blocks_of_the_video():
    source = Source(bytes(2 * BLOCK_BYTES))
    spare = [(number, 1) for number in range(1024 + 2)]

    assert len(read(RangeReader(source), *spare)) == 1026
    with pytest.raises(InvalidReplyError):
        RangeReader(source).start([*spare, (5000, 1)])


def test_a_read_that_fails_is_the_failure_of_all_that_follow():
    class Lost(Source):
        def read(self, _start, _size):
            raise ConnectionError("the cable is cut")

    reader = RangeReader(Lost())

    assert read(reader, (0, 1), (1, 1)) == [None, None]
    assert str(reader.failure) == "the cable is cut"
    assert (reader.header, reader.bytes_fetched) == ([], 0)


def test_a_store_that_is_too_slow_is_at_fault_itself():
    source = Source()
    source.max_wait_s = -1.0

    reader = RangeReader(source)

    assert read(reader, (0, 1)) == [None]
    assert isinstance(reader.failure, StoreUnavailableError)
    assert "Range requests are too slow: 0 s for 0 bytes" in str(reader.failure)


def test_nothing_more_is_read_once_a_batch_is_stopped():
    read_begun, is_released = threading.Event(), threading.Event()

    class Slow(Source):
        def read(self, start, size):
            got = super().read(start, size)
            read_begun.set()
            is_released.wait(60)
            return got

    source = Slow()
    batch = RangeReader(source).start([(number, 1) for number in range(100)])
    assert read_begun.wait(60)
    batch.stop()
    is_released.set()

    assert batch.wait(source.reads[0][0], 60)
    assert len(source.reads) <= MAX_CONCURRENT_READS
