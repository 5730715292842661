import json

import numpy as np
from PIL import Image

from reelabel.index import NO_PTS
from tasks.frame_cache.preview import frames_as_json, save_contact_sheet, save_npz
from tests.reelabel.frames.conftest import keyframes

__all__ = ["keyframes"]


def test_picks_are_described_in_the_order_shown(keyframes):
    described = json.loads(json.dumps(frames_as_json(keyframes)))

    assert [pick["frame"] for pick in described["picks"]] == [0, 0, 1, 2]
    assert described["picks"][2] == {"frame": 1, "pts": 512, "time_s": 1.0, "frame_index": 12, "is_keyframe": True}
    assert (described["keyframes_in_file"], described["width_px"], described["height_px"]) == (3, 56, 28)


def test_what_is_known_of_the_frames_and_their_video_is_described(keyframes):
    known = keyframes.with_selection(pts=np.array([NO_PTS, 512, 1024]), dropped_as_similar=2, pixel_aspect=0.5)

    described = frames_as_json(known)

    assert [pick["pts"] for pick in described["picks"]] == [None, None, 512, 1024]
    assert [pick["frame_index"] for pick in described["picks"]] == [0, 0, 12, None]
    assert [pick["is_keyframe"] for pick in described["picks"]] == [True, True, True, False]
    expected = {"unique_frames": 3, "total_frames": 36, "fps": 12.0, "duration_s": 3.0, "height_px": 28}
    expected |= {"native_width_px": 640, "native_height_px": 360, "rotation_deg": 0, "pixel_aspect": 0.5}
    expected |= {"method": "seek", "note": "", "dropped_as_similar": 2, "decode_ms": 1.5}
    assert {name: described[name] for name in expected} == expected
    assert (described["coverage"], described["keyframe_coverage"]) == (["unknown"], None)


def test_saved_arrays_hold_each_frame_once(keyframes, tmp_path):
    path = tmp_path / "frames.out"

    save_npz(keyframes, path)

    with np.load(path) as saved:
        np.testing.assert_array_equal(saved["frames"], keyframes.unique)
        assert saved["pts"].tolist() == [0, 512, 1024]


def test_the_contact_sheet_shows_each_frame_above_its_time(keyframes, tmp_path):
    path = tmp_path / "sheet.png"

    save_contact_sheet(keyframes, path)

    sheet = np.asarray(Image.open(path))
    left, top = 16 + 92 + 8, 16 + 60 + 20 + 8
    np.testing.assert_array_equal(sheet[top : top + 28, left : left + 56], keyframes.unique[1])
    assert (sheet[top + 28 : top + 48, left : left + 56] < 128).any()
