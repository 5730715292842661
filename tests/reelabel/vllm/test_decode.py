"""From bytes to frames, as in vLLM's processes."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import av
import numpy as np
import pytest

from reelabel.errors import ConfigurationError, FrameFileError, SandboxUnavailableError, VideoUnreadableError
from reelabel.extract import extract_local
from reelabel.integrations.vllm import decode
from reelabel.options import Limits
from reelabel.sampling.options import Sampling
from tests.clips import LONG, make_clip
from tests.factories import make_extractor
from tests.frame_files import encoding_of
from tests.only_child import LOCKS, locks_of, only_child
from tests.reelabel.sandbox.child import LANDLOCK_CREATE_RULESET, refuse, result_of, run_child

__all__ = ["make_clip"]


@pytest.fixture
def one_process(monkeypatch):
    """Let videos be decoded in a process of their own."""
    monkeypatch.setenv(decode.PROCESSES_VARIABLE, "1")


@pytest.fixture
def pool(monkeypatch):
    monkeypatch.setenv(decode.PROCESSES_VARIABLE, "1")
    return decode.decode_pool()


def test_frames_keep_their_size_by_default(make_clip):
    data = make_clip(size=(66, 50)).read_bytes()

    as_stored = decode.decode_video(data, num_frames=4)
    scaled = decode.decode_video(data, num_frames=4, size_multiple_px=28, max_pixels=3136)

    assert as_stored.unique.shape == (4, 50, 66, 3)
    assert scaled.unique.shape == (4, 56, 56, 3)


@pytest.mark.usefixtures("one_process")
def test_a_separate_process_gives_the_same_frames(make_clip):
    path = make_clip()

    got = decode.decode_video(path.read_bytes(), num_frames=4, size_multiple_px=28)

    expected = extract_local(path, sampling=Sampling(num_frames=4, size_multiple_px=28), limits=Limits())
    np.testing.assert_array_equal(got.unique, expected.unique)


@pytest.mark.usefixtures("one_process")
def test_bytes_that_are_not_a_video_are_refused_by_a_separate_process_too():
    with pytest.raises(VideoUnreadableError, match="cannot open the video"):
        decode.decode_video(b"This is no video.", num_frames=4)


def test_killed_decoding_processes_are_restarted(make_clip, pool):
    data = make_clip().read_bytes()
    decode.decode_video(data, num_frames=4)  # the first video starts the process
    [killed] = pool.process_ids
    os.kill(killed, signal.SIGKILL)

    assert len(decode.decode_video(data, num_frames=4).unique) == 4


def test_an_invalid_number_of_processes_is_named(make_clip, monkeypatch):
    monkeypatch.setenv(decode.PROCESSES_VARIABLE, "many")

    with pytest.raises(ConfigurationError, match="REELABEL_LOADER_PROCESSES is 'many'"):
        decode.decode_video(make_clip().read_bytes(), num_frames=4)


def decode_in_locked_process(*, path, refused):
    """Decode a video where locking is required; return how the process is locked, or why none can be."""
    os.environ |= {decode.PROCESSES_VARIABLE: "1", decode.SANDBOX_VARIABLE: "require"}
    for call in refused:
        refuse(call, errno.EOPNOTSUPP)
    try:
        decode.decode_video(Path(path).read_bytes(), num_frames=4)
    except SandboxUnavailableError as error:
        return error.message
    return locks_of(only_child(decode.decode_pool()))


def test_videos_are_decoded_in_a_locked_process_or_refused(make_clip):
    decoded, without_landlock = (
        result_of(run_child(decode_in_locked_process, path=str(make_clip()), refused=refused))
        for refused in ([], [LANDLOCK_CREATE_RULESET])
    )

    assert decoded == LOCKS
    assert without_landlock.startswith("Decoding processes cannot be locked, as ")


@pytest.mark.usefixtures("one_process")
def test_an_invalid_sandbox_is_named(make_clip, monkeypatch):
    monkeypatch.setenv(decode.SANDBOX_VARIABLE, "strict")

    with pytest.raises(
        ConfigurationError, match="REELABEL_LOADER_SANDBOX is 'strict'; it must be auto, require or off"
    ):
        decode.decode_video(make_clip().read_bytes(), num_frames=4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_frames": 0}, "num_frames: must be at least 1, or -1 for every frame"),
        ({"num_frame": 8}, "num_frame: unknown option"),
        ({"fps": 2}, "the sampler keyframes takes no fps"),
        (
            {"escalate_below": 0.5},
            "escalate_below cannot be used without jobs and answers; leave it out",
        ),
    ],
)
def test_an_invalid_option_is_named(make_clip, options, message):
    with pytest.raises(ConfigurationError, match=message):
        decode.decode_video(make_clip().read_bytes(), **options)


def test_bytes_that_are_not_a_video_are_refused():
    with pytest.raises(VideoUnreadableError, match="cannot open the video"):
        decode.decode_video(b"This is no video.", num_frames=4)


@pytest.mark.parametrize("processes", ["0", "1"])
def test_a_video_that_no_scaler_supports_is_refused_everywhere(tmp_path, monkeypatch, processes):
    monkeypatch.setenv(decode.PROCESSES_VARIABLE, processes)
    path = tmp_path / "packed.nut"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("rawvideo", rate=5)
        stream.width, stream.height, stream.pix_fmt = 32, 32, "rgb4"
        frame = av.VideoFrame(32, 32, "rgb4")
        frame.pts = 0
        container.mux([*stream.encode(frame), *stream.encode()])

    with pytest.raises(VideoUnreadableError, match="cannot be decoded"):
        decode.decode_video(path.read_bytes(), num_frames=4)


def test_a_frame_file_of_ranges_is_decoded_if_there_are_processes_for_it(make_clip, tmp_path, pool):
    path = make_clip(**LONG)
    data = store_ranges(path, tmp_path, pool)

    file = decode.read_frame_file(data)

    assert encoding_of(data) == "sparse"
    expected = extract_local(path, sampling=Sampling(num_frames=4), limits=Limits())
    np.testing.assert_array_equal(file.images, expected.unique)


def test_a_frame_file_of_ranges_is_refused_without_processes(make_clip, tmp_path, pool, monkeypatch):
    data = store_ranges(make_clip(**LONG), tmp_path, pool)
    monkeypatch.delenv(decode.PROCESSES_VARIABLE)

    with pytest.raises(FrameFileError, match=decode.PROCESSES_VARIABLE):
        decode.read_frame_file(data)


def store_ranges(path, folder, pool):
    preparer = make_extractor(folder, pool, pixel_encoding="sparse")
    return preparer.cache.read(preparer.prepare(str(path)).identity)


def test_no_scheduler_store_or_database_is_imported():
    parts = ", ".join(f"reelabel.integrations.vllm.{name}" for name in ("decode", "video_input"))
    script = f"import sys, {parts}; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout.split()

    assert not {"prefect", "boto3", "sqlalchemy", "psycopg", "polars", "pyarrow", "urllib3"}.intersection(modules)
