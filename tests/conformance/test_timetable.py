import pytest

from benchmarks.media.matrix import matrix
from reelabel.containers.demux import open_video
from reelabel.containers.registry import probe_file
from reelabel.errors import FallbackRequired, VideoError
from reelabel.limits import Limits
from reelabel.segment import WHOLE
from reelabel.sources.video_file import open_video_file
from reelabel.strategies.frame_index import list_frames as frames_of_index
from reelabel.strategies.seek import list_frames, list_packets

pytestmark = pytest.mark.xdist_group("matrix")

CELLS = [cell for cell in matrix() if cell.container in {"mp4", "mov"}]


def by_packets(path):
    with open_video_file(path) as file, open_video(file, Limits()) as (container, stream):
        try:
            pts, keyframes = list_frames(list_packets(container, stream, Limits()))
        except FallbackRequired:
            return None
        return pts.tolist(), keyframes.tolist()


def times_by_header(path):
    with open_video_file(path) as file:
        try:
            probed = probe_file(file)
            with probed.open(Limits()) as video, probed.guard():
                index = probed.container.read_frames(video, WHOLE)
                numbers, keyframes = frames_of_index(index)
        except (FallbackRequired, VideoError):
            return None
        return index.pts[numbers].tolist(), keyframes


@pytest.mark.parametrize("cell", [pytest.param(cell, id=cell.name) for cell in CELLS])
def test_frame_times_from_a_header_equal_those_of_the_packets(cell, file_of):
    path = file_of(cell)
    told, listed = times_by_header(path), by_packets(path)

    # Its packets are flagged as keyframes where a refresh begins, and are none; or they alone tell of B-frames.
    is_refused = listed is None and (
        cell.structure == "intra-refresh" or cell.structure.startswith("times-of-decoding")
    )
    assert told is None or told == listed or is_refused


def test_most_headers_of_common_codecs_give_frame_times(file_of):
    common = [cell for cell in CELLS if cell.codec in {"h264", "hevc", "vp9", "av1"}]
    told = [times_by_header(file_of(cell)) is not None for cell in common]

    assert sum(told) > len(told) / 2
