from benchmarks.extraction.similar import measure_similar, overall_factor
from benchmarks.media.scenes import SCENES


def test_static_scenes_keep_few_frames_and_moving_scenes_keep_all(tmp_path):
    scenes = [scene for scene in SCENES if scene.name in {"empty room", "room and a lamp", "panning camera"}]

    rows = list(measure_similar(tmp_path, threshold=0.95, scenes=scenes, length_s=12))

    assert {row.scene: (row.before, row.after) for row in rows} == {
        "empty room": (12, 1),
        "room and a lamp": (12, 3),
        "panning camera": (12, 12),
    }
    assert overall_factor(rows, is_static=True) == 6
