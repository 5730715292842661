from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from reelabel.errors import VideoError
from reelabel.index import HeaderInfo, VideoIndex
from reelabel.options import Limits
from tasks.description.scenes import cuts
from tasks.description.scenes.change import SceneMethodError
from tasks.description.scenes.cuts import THRESHOLD, candidates, cuts_above, early_keyframes, find_cuts, ranges_around
from tasks.description.scenes.footage import Footage


@dataclass
class FileRanges:
    path: Path
    max_wait_s: float = 30.0

    @property
    def size_bytes(self):
        return self.path.stat().st_size

    def read(self, start, size):
        return self.path.read_bytes()[start : start + size]


def frames_of(found):
    return [round(each.pts_ms / 40) for each in cuts_above(found, THRESHOLD)]


@pytest.mark.parametrize("scenecut", ["0", "40"])
def test_cuts_are_found_wherever_keyframes_are(shots, look, scenecut):
    footage = look(shots(30, 25, 37, 28, scenecut=scenecut))

    found = find_cuts(footage)

    assert frames_of(found) == [30, 55, 92]
    assert [each.since_ms for each in found.candidates] == [each.pts_ms - 40 for each in found.candidates]
    assert bool(found.note) == (scenecut == "0")  # with a fixed distance, only sizes speak


def test_only_frames_around_candidates_are_decoded(shots, look):
    footage = look(shots(90, 110, gop=40, scenecut="40", hold=1000))

    assert frames_of(find_cuts(footage)) == [90]
    assert footage.frames_decoded < 50


def test_a_cut_at_a_keyframe_of_a_fixed_distance_shows_in_its_size(shots, look):
    found = find_cuts(look(shots(80, 50, gop=40, hold=1000)))

    assert frames_of(found) == [80]
    assert "fixed distance" in found.note


@pytest.mark.parametrize("frames", [1, 2])
def test_a_flash_is_no_cut(shots, look, frames):
    assert frames_of(find_cuts(look(shots(60, 40, flash=25, flash_frames=frames)))) == [60]


def test_fast_motion_is_no_cut(shots, look):
    assert frames_of(find_cuts(look(shots(60, gop=1, hold=1, step_px=13)))) == []


def test_cuts_at_keyframes_of_equal_distance_are_found_where_they_show_another_picture(shots, look):
    """As of slides of equal length, by an encoder that starts a GOP at each second one."""
    footage = look(shots(75, 75, 75, 75, gop=75, hold=1000))

    assert frames_of(find_cuts(footage)) == [75, 150, 225]
    assert frames_of(find_cuts(look(shots(300, gop=75, hold=1000)))) == []


@pytest.mark.parametrize("brightness", [1.0, 0.12])
def test_cuts_are_judged_by_the_contrast_of_the_video(shots, look, brightness):
    found = find_cuts(look(shots(30, 25, 37, 28, scenecut="40", brightness=brightness)))

    assert frames_of(found) == [30, 55, 92]
    assert ("contrast is low" in found.note) == (brightness == 0.12)


def test_noise_in_the_dark_is_no_cut(shots, look):
    assert frames_of(find_cuts(look(shots(200, brightness=0.02, gop=25)))) == []


@pytest.mark.parametrize("gop", [1, 2, 12])
def test_cuts_are_found_where_nearly_every_frame_is_a_keyframe(shots, look, gop):
    assert frames_of(find_cuts(look(shots(30, 25, 37, gop=gop, hold=1000)))) == [30, 55]


def test_a_video_in_ranges_has_its_cuts(shots, pool):
    path = shots(40, 50, 30)
    remote = Footage(video=FileRanges(path), pool=pool, limits=Limits())

    assert frames_of(find_cuts(remote)) == [40, 90]
    assert remote.bytes_read > 0


def test_a_jump_of_timestamps_keeps_the_cuts(shots, look):
    footage = look(shots(40, 50, suffix=".mkv", gap=60))

    assert [each.pts_ms for each in cuts_above(find_cuts(footage), THRESHOLD)] == [1600]


def test_a_cut_after_a_picture_that_is_held_is_found(shots, look):
    footage = look(shots(40, 50, suffix=".mkv", gap=40, hold=1000))

    [cut] = cuts_above(find_cuts(footage), THRESHOLD)

    assert (cut.since_ms, cut.pts_ms) == (39 * 40, 40 * 40 + 10_000)


@pytest.mark.parametrize("count", [1, 2])
def test_a_video_of_hardly_any_frames_has_no_cut(shots, look, count):
    assert find_cuts(look(shots(count))).candidates == ()


def test_a_file_that_lists_nothing_is_reported_with_what_to_use_instead(shots, pool):
    remote = Footage(video=FileRanges(shots(20, 20, suffix=".mkv")), pool=pool, limits=Limits())
    with pytest.raises(SceneMethodError, match=r"does not list its packets .*only by embeddings"):
        find_cuts(remote)


@pytest.mark.parametrize("damage", ["cut short", "zeros", "empty", "noise"])
def test_damaged_files_are_errors_of_the_video_or_have_fewer_cuts(shots, look, damage):
    path = shots(30, 25, 37)
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    if damage == "cut short":
        del data[middle:]
    elif damage == "zeros":
        data[middle : middle + 2000] = bytes(2000)
    elif damage == "empty":
        data.clear()
    else:
        data[:] = np.random.default_rng(0).integers(0, 256, len(data), np.uint8).tobytes()
    path.write_bytes(data)
    try:
        found = frames_of(find_cuts(look(path)))
    except (VideoError, SceneMethodError) as error:
        assert str(error).endswith(".")  # noqa: PT017
    else:
        assert damage == "zeros"
        assert set(found) <= set(range(28, 92))


def packet_list(sizes, keyframes):
    count = len(sizes)
    is_keyframe = np.zeros(count, np.bool_)
    is_keyframe[list(keyframes)] = True
    return VideoIndex(
        info=HeaderInfo(fps=25.0, duration_s=count / 25),
        kind="container",
        lists="frames",
        pts=np.arange(count),
        is_keyframe=is_keyframe,
        is_shown=np.ones(count, np.bool_),
        pos=np.zeros(count, np.int64),
        size=np.array(sizes, np.int64),
        order=np.arange(count),
        time_s=np.arange(count) / 25,
        position=np.arange(count),
    )


def test_candidates_are_early_keyframes_and_large_packets():
    sizes = [100] * 200
    sizes[150] = 1000
    none = np.array([], np.int64)

    assert candidates(packet_list(sizes, (0, 60, 75, 135)), none).tolist() == [75, 150]
    assert early_keyframes(packet_list(sizes, (0, 50, 100, 150))).tolist() == []
    assert candidates(packet_list(sizes, (0, 50, 100, 150)), none).tolist() == []
    assert candidates(packet_list(sizes, (0, 50, 100)), np.array([50])).tolist() == [50, 150]
    assert candidates(packet_list([100], (0,)), none).tolist() == []
    assert candidates(packet_list([0, 0, 0], (0,)), none).tolist() == []


def test_windows_that_touch_are_one():
    packets = packet_list([100] * 100, (0,))

    assert ranges_around(packets, np.array([0, 8, 50])) == [(0, 13), (45, 55)]
    assert ranges_around(packets, np.array([], np.int64)) == []


@pytest.fixture
def batch_sizes(monkeypatch):
    """The number of thumbnails in each batch that is held at once."""
    sizes, thumbnails = [], Footage.thumbnails

    def counted(self, windows):
        found = thumbnails(self, windows)
        sizes.append(len(found.times_ms))
        return found

    monkeypatch.setattr(Footage, "thumbnails", counted)
    return sizes


@pytest.mark.parametrize("fps", [24, 25, Fraction(30000, 1001), 60])
def test_all_frames_around_a_candidate_are_looked_at_whatever_the_rate(shots, look, fps, monkeypatch, batch_sizes):
    apart = np.arange(6, 114, 12)
    monkeypatch.setattr(cuts, "candidates", lambda *_: apart)

    find_cuts(look(shots(60, 60, fps=fps, hold=1000)))

    _keyframes, *around = batch_sizes
    assert around == [len(apart) * (2 * cuts._AROUND + 1)]


@pytest.mark.parametrize("at_once", [1, 4, 7, 30])
def test_pieces_of_any_size_show_the_same_and_no_more_is_held_at_once(shots, look, at_once, monkeypatch, batch_sizes):
    footage = look(shots(30, 25, 37, 28, flash=70))
    whole = find_cuts(footage)
    batch_sizes.clear()
    monkeypatch.setattr(cuts, "_PIECE_FRAMES", at_once)
    monkeypatch.setattr(cuts, "candidates", lambda packets, _: np.arange(1, len(packets.times_ms)))

    everywhere = find_cuts(footage)

    assert max(batch_sizes) <= at_once + 2 * cuts._AROUND
    assert cuts_above(everywhere, 10.0) == cuts_above(whole, 10.0)
    assert frames_of(everywhere) == [30, 55, 92]


@pytest.mark.parametrize("piece", [1, 3, 9, 10])
def test_differences_are_those_of_neighbours_whatever_is_compared_at_a_time(piece, monkeypatch):
    monkeypatch.setattr(cuts, "_PIECE", piece)
    images = np.random.default_rng(0).integers(0, 256, (10, 4, 6, 3), np.uint8)

    found = cuts.differences(images)

    apart = np.abs(images[1:].astype(float) - images[:-1]).mean((1, 2, 3))
    np.testing.assert_allclose(found, [0, *apart], rtol=1e-6)


def test_a_threshold_is_applied_to_what_a_look_has_shown(shots, look):
    shown = find_cuts(look(shots(60, 40)))

    assert [[round(each.pts_ms / 40) for each in cuts_above(shown, least)] for least in (10.0, 250.0)] == [[60], []]
