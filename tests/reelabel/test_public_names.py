"""What other people import: names appear and disappear only on purpose."""

import subprocess
import sys
from importlib.metadata import version

import pytest

import reelabel

PUBLIC = [
    "DecodePool",
    "FrameFile",
    "KeyframeCoverage",
    "Limits",
    "PrepareRequest",
    "PrepareVideo",
    "PreparedRow",
    "ReelabelError",
    "S3Options",
    "SampledFrames",
    "Sampling",
    "Segment",
    "VideoError",
    "VideoMeta",
    "WebOptions",
    "encode_frame_file",
    "extract_keyframes",
    "read_frame_file",
]


def test_the_public_names_are_pinned():
    assert sorted(reelabel.__all__) == PUBLIC
    assert dir(reelabel) == reelabel.__all__


@pytest.mark.parametrize("name", PUBLIC)
def test_each_public_name_can_be_imported_and_is_documented(name):
    assert getattr(reelabel, name).__doc__


def test_the_version_is_that_of_the_distribution():
    assert reelabel.__version__ == version("reelabel")


def test_an_unknown_name_is_no_attribute():
    with pytest.raises(AttributeError, match="has no attribute 'nobody'"):
        _ = reelabel.nobody


def test_importing_the_package_loads_nothing_else():
    script = "import sys, reelabel; print([name for name in sys.modules if name.partition('.')[0] in {'av', 'numpy'}])"

    loaded = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout

    assert loaded == "[]\n"


def test_frames_of_a_video_can_be_written_to_a_frame_file_and_read_by_path(make_clip, tmp_path):
    clip = make_clip()
    frames = reelabel.extract_keyframes(str(clip), sampling=reelabel.Sampling(num_frames=4))
    sampling = reelabel.Sampling(num_frames=4)
    made = reelabel.encode_frame_file(frames, source_uri=str(clip), fingerprint="f", sampling=sampling)
    (tmp_path / "frames.arrow").write_bytes(made.data)

    read = reelabel.read_frame_file(tmp_path / "frames.arrow")

    assert (read.images == frames.images).all()
    assert read.picks.tolist() == frames.picks.tolist()
