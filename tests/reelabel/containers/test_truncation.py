import av
import pytest

from reelabel.containers.formats import missing_bytes
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
