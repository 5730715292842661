"""What other people import: names appear and disappear only on purpose."""

import subprocess
import sys
from importlib.metadata import version

import numpy as np
import pytest

import reelabel

PUBLIC = [
    "Cost",
    "DecodePool",
    "FrameIdentity",
    "FrameIndex",
    "Frames",
    "KeyframeCoverage",
    "Limits",
    "NoIndexError",
    "NoSuchFrameError",
    "ObjectStore",
    "PrepareRequest",
    "PrepareVideo",
    "PreparedRow",
    "ReelabelError",
    "S3Options",
    "Sampling",
    "Segment",
    "Video",
    "VideoError",
    "VideoInfo",
    "VideoMeta",
    "WebOptions",
    "extract_frames",
    "open",
    "read_frames",
    "write_frames",
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


@pytest.mark.parametrize("sampler", ["keyframes", "fps"])
def test_frames_of_a_video_can_be_written_to_a_frame_file_and_read_by_path(make_clip, tmp_path, sampler):
    sampling = reelabel.Sampling(sampler=sampler, num_frames=4)
    frames = reelabel.extract_frames(make_clip("clip.ts", size=(96, 64)), sampling)
    (tmp_path / "frames.arrow").write_bytes(reelabel.write_frames(frames, reelabel.FrameIdentity(sampling=sampling)))

    read = reelabel.read_frames(tmp_path / "frames.arrow")

    for name in ("images", "time_s", "pts", "index", "is_keyframe", "deviation_s", "sampler", "method", "note"):
        assert np.array_equal(getattr(read, name), getattr(frames, name)), name
    assert (read.info.width, read.info.height, read.info.fps) == (96, 64, 12)


@pytest.mark.parametrize(
    "script",
    ["import reelabel.pool.child", "import reelabel; reelabel.extract_frames(sys.argv[1], num_frames=2)"],
    ids=["a decoding process", "frames of a file"],
)
def test_what_decodes_a_file_imports_nothing_slow_that_it_does_not_need(script, make_clip):
    listing = f"import sys; {script}; print(*sys.modules)"

    completed = subprocess.run(
        [sys.executable, "-c", listing, str(make_clip())], check=True, capture_output=True, text=True, timeout=60
    )

    slow = {"boto3", "importlib.metadata", "pyarrow", "pydantic", "urllib3", "reelabel.sources.object_store"}
    assert not slow & set(completed.stdout.split())
