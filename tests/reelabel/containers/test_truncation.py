import io

import av
import pytest

from reelabel.containers.avi import AVI
from reelabel.containers.formats import missing_bytes
from reelabel.containers.matroska import MATROSKA
from reelabel.extract import extract_local
from reelabel.integrations.vllm.video_input import video_input
from reelabel.options import Limits
from reelabel.sampling.options import Sampling
from reelabel.sources.video_file import open_video_file

CLIPS = [
    ("clip.mp4", {"codec": "libx264", "movflags": "faststart"}),
    ("clip.mov", {"codec": "libx264"}),
    ("clip.mkv", {"codec": "libx264"}),
    ("clip.webm", {"codec": "libvpx-vp9"}),
    ("clip.avi", {"codec": "mpeg4"}),
]


def lacking(path):
    with open_video_file(path) as file:
        return missing_bytes(file)


@pytest.mark.parametrize(("name", "options"), CLIPS, ids=[name for name, _ in CLIPS])
def test_a_file_cut_in_the_middle_is_reported_as_truncated(make_clip, name, options):
    path = make_clip(name, frames=96, size=(160, 120), **options)
    whole = path.read_bytes()
    assert lacking(path) == 0

    path.write_bytes(whole[: len(whole) * 2 // 3])

    assert lacking(path) == pytest.approx(len(whole) / 3, rel=0.2)


def test_frames_of_a_truncated_file_say_so(make_clip):
    path = make_clip("clip.mkv", frames=96, size=(160, 120))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])

    got = extract_local(path, sampling=Sampling(num_frames=4), limits=Limits())

    assert f"its last {len(whole) - len(whole) // 2:,} bytes are missing" in got.note


@pytest.mark.parametrize("name", ["clip.mkv", "clip.webm"])
def test_a_cut_video_is_as_long_as_what_can_be_decoded(make_clip, name):
    codec = {"clip.mkv": "libx264", "clip.webm": "libvpx-vp9"}[name]
    path = make_clip(name, frames=96, fps=12, size=(160, 120), codec=codec)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with av.open(str(path)) as container:
        left = sum(1 for _ in container.decode(video=0))

    got = extract_local(path, sampling=Sampling(num_frames=4), limits=Limits())

    assert left < 80
    assert (got.selection.total_frames, got.selection.duration_s) == (left, left / 12)
    assert video_input(got)[1]["total_num_frames"] == left


def test_a_format_that_states_no_length_is_not_judged(make_clip):
    assert lacking(make_clip("clip.ts")) == 0


@pytest.mark.parametrize(
    ("size", "content"),
    [
        pytest.param(b"\xe4", 100, id="a size of one byte"),
        pytest.param(b"\x40\x64", 100, id="of two"),
        pytest.param(b"\x01\0\0\0\0\0\0\x64", 100, id="of eight"),
        pytest.param(b"\x01\0\0\0\0\0\x01\0", 256, id="beyond a byte"),
        pytest.param(b"\xff", 0, id="unknown in one byte"),
        pytest.param(b"\x01" + b"\xff" * 7, 0, id="unknown in eight"),
        pytest.param(b"\0\x64", 0, id="no size"),
    ],
)
def test_a_segment_of_matroska_lacks_what_its_size_states(size, content):
    head = b"\x1a\x45\xdf\xa3\x80\x18\x53\x80\x67" + size
    whole = head + bytes(content + 20)

    def lacks(data):
        return MATROSKA.missing_bytes(io.BytesIO(data), len(data))

    assert lacks(whole) == lacks(whole[:-20]) == 0
    assert lacks(whole[: len(head) + 10]) == max(0, content - 10)
    assert lacks(head[:9] + b"\xe4") == lacks(bytes(20)) == 0  # cut in its head, and none


def test_a_file_of_avi_lacks_what_its_header_states():
    def lacks(declared, size):
        return AVI.missing_bytes(io.BytesIO(b"RIFF" + declared.to_bytes(4, "little") + b"AVI "), size)

    assert [lacks(1000, size) for size in (1008, 1007, 2000)] == [0, 1, 0]
    assert lacks(2**32 - 1, 100) == 0  # written by a muxer that could not seek back
