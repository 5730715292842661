"""The benchmark `extract` on the smallest clip."""

import itertools

import av
import pytest

from benchmarks.extraction.files import DECODED, RATIOS, measure_decode
from benchmarks.extraction.remote import Case, measure_fetch, measure_ranges
from benchmarks.media.clips import BenchClip
from reelabel.segment import WHOLE, Segment

pytestmark = pytest.mark.system

CLIP = BenchClip(width_px=640, height_px=360, gop=60, length_s=30)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("bench")


def test_a_clip_longer_than_a_minute_continues_after_the_minute(folder):
    with av.open(str(BenchClip(width_px=640, height_px=360, gop=60, length_s=70).make(folder))) as container:
        times = sorted(packet.pts for packet in container.demux(video=0) if packet.size)

    assert len(times) == 70 * 30
    assert {later - earlier for earlier, later in itertools.pairwise(times)} == {512}


def test_every_method_of_decoding_is_measured(folder):
    (row,) = measure_decode([CLIP], folder, rounds=1)

    assert all(column.value(row) is not None for column in (*DECODED, *RATIOS) if column.key != "opencv")


def test_less_than_the_file_is_fetched_and_a_known_header_not_again(folder, objects, store_settings):
    (row,) = measure_fetch([CLIP], folder, objects=objects, root_uri=store_settings.uri, rounds=1)

    assert row["cached_bytes"] < row["read_bytes"] < row["file_bytes"]
    assert row["read_bytes"] <= 1.25 * row["needed_bytes"]


@pytest.mark.parametrize("segment", [WHOLE, Segment(10, 13)], ids=["whole", "segment"])
def test_ranges_give_the_frames_of_a_download_at_little_more_than_the_bytes_needed(
    folder, objects, store_settings, segment
):
    case = Case(CLIP, segment, least_saving=1, least_gain=0)

    (row,) = measure_ranges([case], folder, objects=objects, root_uri=store_settings.uri, rounds=1)

    assert row["is_same"]
    assert row["read_bytes"] <= 1.25 * row["needed_bytes"]
    assert min(row["gain"], row["speedup"], row["bound"]) > 0
