"""The benchmark beside TorchCodec, but for TorchCodec's own environment."""

import numpy as np
import pytest

from benchmarks.torchcodec import environment
from benchmarks.torchcodec.measure import SETTINGS, Bare, KeyframeRow, Load, Pair, PeerRow
from benchmarks.torchcodec.process import answer, load_bare, load_ours
from benchmarks.torchcodec.report import bound_table, keyframe_table, peer_table
from reelabel.errors import ReelabelError
from reelabel.extract import extract_local
from reelabel.sampling.options import Sampling
from tests.clips import write_clip


def row_of(times_ms):
    """Return a row with TorchCodec's and our milliseconds of each round, by setting; the others take 900."""
    slow = [Pair(900, 100, 900, 100)]
    pairs = {setting: [Pair(*each, *each) for each in times_ms.get(str(setting), [])] or slow for setting in SETTINGS}
    return PeerRow(
        clip="clip",
        pairs=pairs,
        bare=[Bare(100, 80, 140, 100), Bare(90, 70, 150, 100), Bare(200, 70, 900, 100)],
        pictures=(900, 600),
        ours_alone_ms=150,
        are_times_equal=True,
        mean_difference=0,
    )


def test_the_ratio_is_that_of_pairs_with_the_setting_that_suits_torchcodec_best():
    row = row_of({"approximate 2": [(300, 100), (100, 100), (800, 400)], "exact 1": [(250, 100), (900, 100)]})

    assert row.ratio == row.cpu_ratio == 2  # of 3, 1 and 2
    assert row.theirs_ms(SETTINGS[0]) == 900


def test_the_table_has_a_column_for_each_setting():
    table = peer_table([row_of({})], "the source's size")

    assert [column.header for column in table.columns][3:9] == [str(setting) for setting in SETTINGS]
    assert [next(iter(column.cells)) for column in table.columns][-4:] == ["9.00x", "9.00x", "equal", "none"]


def test_the_bound_is_what_ffmpeg_alone_would_gain():
    row = row_of({"exact 0": [(300, 200)] * 9})

    [*cells] = [next(iter(column.cells)) for column in bound_table([row]).columns]

    assert cells[1:] == ["900", "600", "100.0", "70.0", "1.50x", "1.50x", "2.00x"]


def test_keyframes_are_compared_with_an_approximate_seek_as_their_users_get_them():
    row = KeyframeRow(
        clip="clip",
        ours=[Load(ms, 2 * ms, 3000, [0.0, 2.0, 4.0]) for ms in (9.0, 10.0, 30.0)],
        theirs=[Load(ms, 2 * ms, 9000, [0.0, 1.5, 3.0, 4.5]) for ms in (90.0, 100.0, 300.0)],
        size_bytes=9000,
    )

    [*cells] = [next(iter(column.cells)) for column in keyframe_table([row]).columns]

    assert cells == ["clip", "9,000", "3", "4", "10.0", "100.0", "20.0", "200.0", "3,000", "9,000", "0.50"]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    "encode", [{"b_frames": 2}, {"codec": "libx265", "x265-params": "bframes=3:open-gop=0"}], ids=["h264", "hevc"]
)
def test_ffmpeg_alone_decodes_the_pictures_that_ours_decodes_and_all_up_to_the_picks(tmp_path, encode, threads):
    path = write_clip(tmp_path / "clip.mp4", frames=48, gop=24, **encode)
    ours = extract_local(path, sampling=Sampling(sampler="uniform", num_frames=4), native=True)
    request = {"path": str(path), "indices": ours.frame_index.tolist(), "threads": threads}
    load = load_bare()

    whole, needed = (answer(load, request | {"skips_leaves": skips})["decoded"] for skips in (False, True))

    assert ours.frame_index.tolist() == [0, 15, 31, 47]
    assert needed == ours.frames_decoded < whole <= 48


def test_our_process_answers_with_the_times_and_pixels_of_its_frames(tmp_path):
    path, kept = write_clip(tmp_path / "clip.mp4"), tmp_path / "frames.npy"
    request = {"path": str(path), "frames": 5, "threads": 2, "at_model_size": False, "keep": str(kept)}

    keyframes = answer(load_ours(), request | {"sampler": "keyframes"})
    got = answer(load_ours(), request)

    expected = extract_local(path, sampling=Sampling(sampler="uniform", num_frames=5), native=True)
    assert got["indices"] == expected.frame_index.tolist()
    assert got["times_s"] == expected.time_s.tolist()
    assert got["size"] == expected.images.shape[1:3]
    assert min(got["ms"], got["cpu_ms"], got["bytes_read"]) > 0
    assert {*keyframes["indices"]} == {0, 12, 24, 36}
    np.testing.assert_array_equal(np.load(kept), expected.images)


def test_a_machine_without_ffmpeg_is_told_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(environment, "find_library", lambda _: None)

    with pytest.raises(ReelabelError, match="apt-get install ffmpeg"):
        environment.torchcodec_python(tmp_path)
