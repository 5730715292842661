"""The benchmarks of decoding, fetching and storing, on the smallest clip."""

import itertools
import xml.etree.ElementTree as ET

import av
import pytest

from benchmarks.extraction.archive import ALONE, COPIED, KNOWN, NEW, measure_archive
from benchmarks.extraction.decode import INDEXED, LIMIT, OURS, PASSING, measure_decode
from benchmarks.extraction.fetch import measure_fetch
from benchmarks.extraction.ranges import Case, measure_ranges
from benchmarks.extraction.store import PACKETS, measure_store
from benchmarks.extraction.survey import measure_survey
from benchmarks.media.clips import BenchClip
from benchmarks.plot import Panel, draw
from reelabel.segment import WHOLE, Segment

pytestmark = pytest.mark.xdist_group("benchmark-clips")

CLIP = BenchClip(width_px=640, height_px=360, gop=60, length_s=30)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("bench")


@pytest.mark.system
def test_a_clip_longer_than_a_minute_continues_after_the_minute(folder):
    with av.open(str(BenchClip(width_px=640, height_px=360, gop=60, length_s=70).make(folder))) as container:
        times = sorted(packet.pts for packet in container.demux(video=0) if packet.size)

    assert len(times) == 70 * 30
    assert {later - earlier for earlier, later in itertools.pairwise(times)} == {512}


@pytest.mark.system
def test_every_method_of_decoding_is_measured(folder):
    (row,) = measure_decode([CLIP], folder, rounds=1)

    assert {OURS, INDEXED, LIMIT, PASSING} <= set(row.median_ms)
    assert row.ratio(OURS, LIMIT) > 0


@pytest.mark.system
def test_less_than_the_file_is_fetched_and_a_known_header_not_again(folder, objects, store_settings):
    (row,) = measure_fetch([CLIP], folder, objects=objects, root_uri=store_settings.uri, rounds=1)

    assert row.cached_bytes < row.parts_bytes < row.file_bytes
    assert row.parts_bytes <= 1.25 * row.needed_bytes


@pytest.mark.system
@pytest.mark.parametrize("segment", [WHOLE, Segment(10, 13)], ids=["whole", "segment"])
def test_ranges_give_the_frames_of_a_download_at_little_more_than_the_bytes_needed(
    folder, objects, store_settings, segment
):
    case = Case(CLIP, segment, least_saving=1, least_gain=0)

    (row,) = measure_ranges([case], folder, objects=objects, root_uri=store_settings.uri, rounds=1)

    assert row.is_same
    assert row.read_bytes <= 1.25 * row.needed_bytes
    assert min(row.gain, row.speedup, row.bound) > 0


@pytest.mark.system
def test_a_clip_in_a_tar_costs_little_more_than_in_a_file_of_its_own(folder, store_settings):
    rows = measure_archive(CLIP, folder, store=store_settings, root_uri=store_settings.uri, megabytes=20, rounds=1)

    cost = {row.way: row for row in rows}
    assert cost[KNOWN].bytes_read <= cost[ALONE].bytes_read + 16 * 1024
    assert cost[ALONE].requests < cost[KNOWN].requests < cost[NEW].requests
    assert cost[NEW].bytes_read < cost[COPIED].bytes_read / 20
    assert cost[COPIED].members > 10


@pytest.mark.system
def test_every_format_is_measured_and_all_but_jpeg_are_exact(folder, objects, store_settings):
    rows = list(measure_store([CLIP], folder, objects=objects, root_uri=store_settings.uri, rounds=1))

    stored_bytes = {row.format: row.stored_bytes for row in rows}
    assert {row.format for row in rows if row.psnr_db is not None} == {"jpeg 85", "jpeg 95"}
    assert stored_bytes[PACKETS] < stored_bytes["zstd"] < stored_bytes["lz4"] < stored_bytes["raw"]


def test_a_plot_is_well_formed_and_a_name_has_the_same_colour_in_each_chart():
    line = [(30, 2.0), (600, 150.0)]
    picture = ET.fromstring(
        draw([Panel("Decode, ms", {"ours & theirs": line, "b": line}), Panel("Fetch, ms", {"b": line, "c": line})])
    )

    labels = [(each.text, each.get("fill")) for each in picture.findall(".//{*}text") if each.get("fill")]
    assert [name for name, _ in labels] == ["ours & theirs", "b", "b", "c"]
    assert len(set(labels)) == len({colour for _, colour in labels}) == 3


@pytest.mark.system
def test_a_survey_of_all_clips_is_cheaper_with_cached_indexes_and_a_sample_sees_so_many(
    folder, services, store_settings, objects
):
    settings = services.model_copy(update={"store": store_settings})

    first, again, sample = measure_survey(folder, settings=settings, objects=objects, videos=4, rows=40, sample=10)

    assert [row.seen for row in (first, again, sample)] == [4, 4, 10]
    assert first.bytes_read > 0 == again.bytes_read
    assert sample.rows == 40
