import pytest

from benchmarks.media.matrix import matrix
from reelabel.containers.formats import open_by_format
from reelabel.decode.read_index import scan_file
from reelabel.errors import FallbackRequired, VideoError
from reelabel.options import Limits
from reelabel.sources.video_file import open_video_file

pytestmark = pytest.mark.xdist_group("matrix")

CELLS = [cell for cell in matrix() if cell.container in {"mp4", "mov"}]


def listed(index):
    return index.pts[index.order].tolist(), index.keyframe_indices.tolist()


def by_packets(path):
    with open_video_file(path) as file:
        try:
            return listed(scan_file(file, Limits(), all_shown=False))
        except FallbackRequired:
            return None


def times_by_header(path):
    with open_video_file(path) as file:
        try:
            with open_by_format(file, Limits()) as video:
                index = video.read_frames()
        except (FallbackRequired, VideoError):
            return None
    return None if index.doubt else listed(index)


@pytest.mark.parametrize("cell", [pytest.param(cell, id=cell.name) for cell in CELLS])
def test_frame_times_from_a_header_equal_those_of_the_packets(cell, file_of):
    path = file_of(cell)
    from_header, from_packets = times_by_header(path), by_packets(path)

    # Its packets are flagged as keyframes where a refresh begins, and are none; or they alone tell of B-frames.
    is_refused = from_packets is None and (
        cell.structure == "intra-refresh" or cell.structure.startswith("times-of-decoding")
    )
    assert from_header is None or from_header == from_packets or is_refused


def test_most_headers_of_common_codecs_give_frame_times(file_of):
    common = [cell for cell in CELLS if cell.codec in {"h264", "hevc", "vp9", "av1"}]
    has_times = [times_by_header(file_of(cell)) is not None for cell in common]

    assert sum(has_times) > len(has_times) / 2
