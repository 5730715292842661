"""The benchmark beside TorchCodec, but for TorchCodec's own environment."""

import numpy as np
import pytest

from benchmarks.extraction import torchcodec
from benchmarks.extraction.loader_process import answer, load_bare, load_ours
from benchmarks.extraction.torchcodec import KEYFRAMES, keyframe_figures, summarize
from reelabel.errors import ReelabelError
from reelabel.extract import extract_local
from reelabel.sampling.options import Sampling
from tests.clips import write_clip


def taken(*values):
    return [{"ms": ms, "cpu_ms": cpu_ms} for ms, cpu_ms in values]


def rounds(theirs_ms, ours_ms):
    return [taken((his, his), (mine, mine)) for his, mine in zip(theirs_ms, ours_ms, strict=True)]


def test_the_ratio_is_that_of_pairs_with_the_setting_that_suits_torchcodec_best():
    pairs = {"approximate 2": rounds([300, 100, 800], [100, 100, 400]), "exact 1": rounds([250, 900], [100, 100])}

    row = summarize(pairs, [taken((100, 140), (80, 100))])

    assert row["ratio"] == row["cpu_ratio"] == 2  # of 3, 1 and 2
    assert row["exact 1"] == 575


def test_the_bound_is_what_ffmpeg_alone_would_gain():
    bare = [taken((100, 140), (80, 100)), taken((90, 150), (70, 100)), taken((200, 900), (70, 100))]

    row = summarize({"exact 0": [taken((300, 300), (200, 200))] * 9}, bare)

    assert [row[name] for name in ("all_ms", "needed_ms", "bound", "cpu_ratio", "overhead")] == [100, 70, 1.5, 1.5, 2]


def test_keyframes_are_compared_with_an_approximate_seek_as_their_users_get_them():
    ours = {"bytes_read": 3000, "times_s": [0.0, 2.0, 4.0]}
    theirs = {"bytes_read": 9000, "times_s": [0.0, 1.5, 3.0, 4.5]}
    taken_ms = [taken((ms, 2 * ms), (10 * ms, 20 * ms)) for ms in (9, 10, 30)]
    pairs = [(ours | mine, theirs | his) for mine, his in taken_ms]

    figures = keyframe_figures(pairs)

    assert [figures[column.key] for column in KEYFRAMES[2:]] == [3, 4, 10, 100, 20, 200, 3000, 9000, 0.5]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    "encode", [{"b_frames": 2}, {"codec": "libx265", "x265-params": "bframes=3:open-gop=0"}], ids=["h264", "hevc"]
)
def test_ffmpeg_alone_decodes_the_pictures_that_ours_decodes_and_all_up_to_the_picks(tmp_path, encode, threads):
    path = write_clip(tmp_path / "clip.mp4", frames=48, gop=24, **encode)
    ours = extract_local(path, sampling=Sampling(sampler="uniform", num_frames=4), as_stored=True)
    request = {"path": str(path), "indices": ours.selection.frame_index.tolist(), "threads": threads}
    load = load_bare()

    whole, needed = (answer(load, request | {"skips_leaves": skips})["decoded"] for skips in (False, True))

    assert ours.selection.frame_index.tolist() == [0, 15, 31, 47]
    assert needed == ours.cost.frames_decoded < whole <= 48


def test_our_process_answers_with_the_times_and_pixels_of_its_frames(tmp_path):
    path, kept = write_clip(tmp_path / "clip.mp4"), tmp_path / "frames.npy"
    request = {"path": str(path), "frames": 5, "threads": 2, "keep": str(kept)}

    keyframes = answer(load_ours(), request | {"sampler": "keyframes"})
    got = answer(load_ours(), request)

    expected = extract_local(path, sampling=Sampling(sampler="uniform", num_frames=5), as_stored=True)
    assert got["indices"] == expected.selection.frame_index.tolist()
    assert got["times_s"] == expected.selection.time_s.tolist()
    assert min(got["ms"], got["cpu_ms"], got["bytes_read"]) > 0
    assert {*keyframes["indices"]} == {0, 12, 24, 36}
    np.testing.assert_array_equal(np.load(kept), expected.unique)


def test_without_ffmpeg_the_package_to_install_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(torchcodec, "find_library", lambda _: None)

    with pytest.raises(ReelabelError, match="apt-get install ffmpeg"):
        torchcodec.torchcodec_python(tmp_path)
