import random
import threading
from pathlib import Path

import numpy as np
import pytest

from reelabel.errors import FallbackRequired, StoreUnavailableError
from reelabel.extract import extract_local, extract_ranges
from reelabel.options import Limits
from reelabel.sampling.options import Sampling
from reelabel.sources.sparse_file import ByteRange, SparseFile, merge_ranges, read_ranges

SAMPLING = Sampling(num_frames=4)


class Memory:
    """A source that keeps account of what it gives."""

    def __init__(self, data, failing_after=None):
        self.data = data
        self.given = []
        self.failing_after = failing_after

    max_wait_s = 60

    @property
    def size_bytes(self):
        return len(self.data)

    def read(self, start, size):
        if self.failing_after is not None and len(self.given) >= self.failing_after:
            raise StoreUnavailableError("The store does not answer.")
        assert 0 <= start < start + size <= len(self.data)
        self.given.append((start, size))
        return self.data[start : start + size]


def noise(size_bytes):
    return random.Random(3).randbytes(size_bytes)


LARGE = {"qp": "2", "preset": "ultrafast"}
CODECS = {
    ".webm": ("libvpx-vp9", {"crf": "4", "b": "0", "deadline": "realtime", "cpu-used": "8"}),
    ".avi": ("mpeg4", {"qmin": "1", "qmax": "1"}),
}


@pytest.fixture(params=["clip.mp4", "clip.mov", "clip.mkv", "clip.webm", "clip.avi"])
def clip(request, make_clip):
    """Make a clip whose keyframes are a small part of it."""
    codec, options = CODECS.get(Path(request.param).suffix, ("libx264", {"b_frames": 2} | LARGE))
    return make_clip(request.param, codec=codec, size=(224, 160), frames=240, gop=24, **options)


def test_reads_return_the_sources_bytes_wherever_they_start():
    data = noise(300_000)
    file = SparseFile(Memory(data))
    rng = random.Random(1)

    for _ in range(50):
        start, size = rng.randrange(300_000), rng.randrange(1, 2000)
        file.seek(start)
        got = file.read(size)
        assert got
        assert data.startswith(got, start)
        assert file.tell() == start + len(got)
        if file.bytes_fetched > 100_000:
            break

    file.seek(0, 2)
    assert file.read(10) == b""


def test_fetched_bytes_are_not_fetched_again():
    source = Memory(noise(1_000_000))
    file = SparseFile(source)

    file.prefetch([ByteRange(5000, 1000), ByteRange(5500, 2000), ByteRange(90_000, 10)])
    file.prefetch([ByteRange(5000, 2500), ByteRange(90_000, 20)])
    file.wait()

    assert sorted(source.given) == [(5000, 2500), (90_000, 10), (90_010, 10)]
    assert file.bytes_fetched == 2520


def test_known_extents_are_not_fetched():
    data = noise(200_000)
    first = SparseFile(Memory(data))
    first.prefetch([ByteRange(100, 50_000)])
    source = Memory(data)

    file = SparseFile(source, known=first.extents)
    file.seek(40_000)

    assert file.read(1000) == data[40_000:41_000]
    assert source.given == []


def test_frames_read_in_parts_equal_those_of_the_whole_file(clip):
    source = Memory(clip.read_bytes())
    whole = extract_local(clip, sampling=SAMPLING, limits=Limits())

    got, _ = extract_ranges(source, sampling=SAMPLING, limits=Limits())

    assert (got.method, got.selection.pts.tolist()) == ("index", whole.selection.pts.tolist())
    np.testing.assert_array_equal(got.unique, whole.unique)
    assert got.cost.bytes_fetched == sum(size for _, size in source.given) < source.size_bytes / 2


def test_with_a_known_header_only_frames_are_read(clip):
    data = clip.read_bytes()
    _, header = extract_ranges(Memory(data), sampling=Sampling(num_frames=2), limits=Limits())
    source = Memory(data)

    got, _ = extract_ranges(source, sampling=SAMPLING, limits=Limits(), known=header)

    fresh, _ = extract_ranges(Memory(data), sampling=SAMPLING, limits=Limits())
    np.testing.assert_array_equal(got.unique, fresh.unique)
    assert got.cost.bytes_fetched < fresh.cost.bytes_fetched
    assert len(source.given) <= 4


def test_a_container_without_an_index_is_read_whole(make_clip):
    data = make_clip("clip.ts", size=(160, 120), frames=240, **LARGE).read_bytes()

    with pytest.raises(FallbackRequired, match="no index"):
        extract_ranges(Memory(data), sampling=SAMPLING, limits=Limits())


def test_a_small_file_is_read_whole(make_clip):
    with pytest.raises(FallbackRequired, match="most of the file") as raised:
        extract_ranges(Memory(make_clip().read_bytes()), sampling=SAMPLING, limits=Limits())

    assert raised.value.bytes_fetched >= 0


@pytest.mark.parametrize("failing_after", range(4))
def test_an_error_of_a_source_is_raised_unchanged_wherever_it_occurs(make_clip, failing_after):
    path = make_clip(size=(160, 120), frames=240, gop=24, **LARGE)

    with pytest.raises(StoreUnavailableError):
        extract_ranges(Memory(path.read_bytes(), failing_after=failing_after), sampling=SAMPLING, limits=Limits())


def a_range_that_comes_late():
    """Return bytes, what lets those at 600,000 come, and a file of them that is fetching both of its ranges."""
    data, may_end = noise(1_000_000), threading.Event()

    class Late(Memory):
        def read(self, start, size):
            assert start < 500_000 or may_end.wait(10)
            return super().read(start, size)

    file = SparseFile(Late(data))
    file.prefetch([ByteRange(0, 1000), ByteRange(600_000, 1000)])
    return data, may_end, file


def test_ranges_are_read_while_the_first_ones_are_used():
    data, may_end, file = a_range_that_comes_late()

    assert file.read_at(0, 1000) == data[:1000]  # waits for none but its own
    may_end.set()
    assert file.read_at(600_000, 1000) == data[600_000:601_000]


def test_what_is_cached_is_read_while_another_thread_waits_for_a_range():
    (data, may_end, file), late = a_range_that_comes_late(), []
    waiter = threading.Thread(target=lambda: late.append(file.read_at(600_000, 1000)))
    waiter.start()

    for _ in range(20):
        waiter.join(0.01)
        assert file.read_at(0, 1000) == data[:1000]
    may_end.set()
    waiter.join()
    assert late == [data[600_000:601_000]]


def test_the_failure_of_a_range_is_raised_where_it_is_needed():
    file = SparseFile(Memory(noise(1_000_000), failing_after=0))

    file.prefetch([ByteRange(0, 1000), ByteRange(600_000, 1000)])

    with pytest.raises(StoreUnavailableError):
        file.read_at(600_000, 10)
    assert isinstance(file.failure, StoreUnavailableError)


def read_in_sequence(file, start, end):
    file.seek(start)
    while file.tell() < end:
        file.read(10_000)


def test_blocks_grow_while_a_file_is_read_in_sequence():
    source = Memory(noise(8_000_000))
    file = SparseFile(source)

    read_in_sequence(file, 0, 3_000_000)
    assert [size for _, size in source.given] == [*(2**power for power in range(14, 20)), 2**20, 2**20]
    file.read_at(5_000_000, 10)
    assert source.given[-1] == (5_000_000, 2**14)


def test_blocks_of_media_data_are_larger_and_no_part_of_the_header():
    source = Memory(noise(8_000_000))
    file = SparseFile(source)
    file.read_at(0, 10)
    assert file.index == file.extents
    file.end_of_header()

    read_in_sequence(file, 4_000_000, 4_900_000)

    assert source.given == [(0, 2**14), (4_000_000, 2**18), (4_262_144, 2**19), (4_786_432, 2**20)]
    assert [len(each.data) for each in file.index] == [2**14]
    assert sum(len(each.data) for each in file.extents) == file.bytes_fetched == 2**14 + 7 * 2**18


def test_large_ranges_are_read_by_several_requests():
    source = Memory(bytes(20 * 1024**2))
    file = SparseFile(source)

    file.prefetch([ByteRange(100, 9 * 1024**2)])
    file.wait()

    assert sorted(source.given) == [(100, 2**22), (100 + 2**22, 2**22), (100 + 2**23, 2**20)]


def test_half_of_a_file_may_be_read_and_nothing_is_read_past_its_end():
    file = SparseFile(Memory(noise(100_000)))

    file.prefetch([ByteRange(50_000, 60_000)])
    assert (len(file.read_at(99_000, 5000)), file.read_at(100_000, 1), file.read_at(5, 0)) == (1000, b"", b"")
    with pytest.raises(FallbackRequired, match="most of the file"):
        file.read_at(0, 1)


def test_a_source_that_ends_early_is_an_error():
    class Short(Memory):
        def read(self, start, size):
            return super().read(start, size)[:-1]

    with pytest.raises(EOFError, match="expected 500 bytes at 300, got 499"):
        list(read_ranges(Short(bytes(1000)), [ByteRange(300, 500)]))


def test_a_source_that_reads_several_ranges_by_itself_does():
    class Batch(Memory):
        def read_many(self, spans):
            return (self.data[span.start : span.end] for span in spans)

    source = Batch(noise(1000))

    assert list(read_ranges(source, [ByteRange(0, 10), ByteRange(500, 7)])) == [source.data[:10], source.data[500:507]]
    assert source.given == []


@pytest.mark.parametrize(
    ("gap_bytes", "merged"), [(0, [(0, 20), (25, 5), (31, 9)]), (1, [(0, 20), (25, 15)]), (5, [(0, 40)])]
)
def test_ranges_are_merged_up_to_a_gap(gap_bytes, merged):
    ranges = [ByteRange(*each) for each in [(0, 10), (10, 5), (12, 8), (13, 2), (25, 5), (31, 9)]]

    assert merge_ranges(ranges, gap_bytes=gap_bytes) == merged


@pytest.mark.parametrize(
    ("mib", "most_mib", "as_small_mib"), [(4, 2, 4), (64, 32, 64), (65, 32.5, 64), (200, 100, 100), (4096, 256, 256)]
)
def test_of_a_large_file_no_more_is_held_than_fits(mib, most_mib, as_small_mib):
    file = SparseFile(type("Large", (Memory,), {"size_bytes": mib * 1024**2})(b""))

    assert file.max_bytes == most_mib * 1024**2
    file.allow_whole_if_small()
    assert file.max_bytes == as_small_mib * 1024**2


def test_small_files_may_be_read_whole_and_large_ones_never_fill_the_memory():
    class Large(Memory):
        size_bytes = 4 * 1024**3

    file = SparseFile(Memory(noise(10_000)))
    file.allow_whole_if_small()
    file.prefetch([ByteRange(0, 10_000)])
    assert file.extents[0].data == file.read_at(0)

    large = SparseFile(Large(b""))
    large.allow_whole_if_small()
    with pytest.raises(FallbackRequired):
        large.prefetch([ByteRange(0, 1024**3)])
