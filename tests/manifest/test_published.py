"""Files of the published layouts at full size, with the flaws of the published ones."""

import csv
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tasks.manifest.check import check_manifest
from tests.command_line import reelabel

HEADER = ["video", "frame_count", "width", "height", "question", "answer", "qid", "type", "a0", "a1", "a2", "a3", "a4"]
TYPES = ("CW", "CH", "TN", "TC", "TP", "DC", "DL", "DO")
ROWS = {"val": 4996, "test": 8564}
# Rows that repeat a wrong choice, and rows that repeat the correct one.
BLEMISHED = {"val": ((17, 2500), (4995,)), "test": ((3, 40, 41, 5000, 7777, 8563), (0, 6000))}


def write_nextqa(folder, split, videos=570):
    rng = np.random.default_rng(len(split))
    wrong, right = BLEMISHED[split]
    video_map = {}
    with (folder / f"{split}.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(HEADER)
        for number in range(ROWS[split]):
            video = str(2_400_000_000 + number % videos)
            video_map[video] = f"{number % 1000:04}/{video}"
            choices = [f'{word} the "{number % 7}", then rest' for word in ("sit", "stand", "walk", "jump", "run")]
            answer = int(rng.integers(5))
            if number in wrong:
                choices[(answer + 1) % 5] = choices[(answer + 2) % 5]
            if number in right:
                choices[(answer + 3) % 5] = choices[answer]
            sizes = (369, 640, 480)
            question = f"why did the man {number} act, really"
            writer.writerow([video, *sizes, question, answer, number // videos, TYPES[number % 8], *choices])
    (folder / "map_vid_vidorID.json").write_text(json.dumps(video_map))
    return str(folder / f"{split}.csv")


@pytest.mark.parametrize("split", ["val", "test"])
def test_published_nextqa_files_import_and_their_duplicates_are_reported(tmp_path, split):
    source, target = write_nextqa(tmp_path, split), str(tmp_path / "jobs.parquet")
    wrong, right = BLEMISHED[split]
    options = ("--layout", "nextqa", "--video-map", str(tmp_path / "map_vid_vidorID.json"))

    refused = reelabel({}, "manifest", "import", source, target, *options)
    kept = reelabel({}, "manifest", "import", source, target, *options, "--keep-going")

    assert (refused.returncode, kept.returncode) == (2, 1), kept.stderr
    assert "the correct answer is repeated among the choices: 's" not in refused.stdout
    assert refused.stderr.count("the correct answer is repeated among the choices") == len(right)
    assert f"first line {right[0] + 2} (job_id '" in refused.stderr
    assert (
        f"Merged repeated wrong choices in {len(wrong)} questions of {source} (first: line {wrong[0] + 2}"
        in kept.stdout
    )
    frame = pl.read_parquet(target)
    assert check_manifest(frame) == []
    assert len(frame) == ROWS[split] - len(right)
    assert frame.filter(pl.col("choices").list.len() == 4).height == len(wrong)
    rejected = pl.read_csv(tmp_path / "rejected.csv")
    assert rejected["place"].to_list() == [f"line {number + 2}" for number in right]
    assert rejected.columns == ["place", "job_id", "reason", "given"]
    assert json.loads(rejected["given"][0])["qid"] == str(right[0] // 570)


def test_a_flat_nextqa_folder_is_warned_of(tmp_path):
    source, target = write_nextqa(tmp_path, "val"), str(tmp_path / "jobs.parquet")

    stdout = reelabel({}, "manifest", "import", source, target, "--layout", "nextqa", "--keep-going").stdout

    assert f"Without --video-map, every video is expected at {tmp_path}/<video>.mp4" in stdout
    assert "map_vid_vidorID.json" in stdout


def write_mvbench(folder: Path):
    """Two subtasks of 200 questions: one repeats a wrong choice, and one its answer; and one made of pictures."""
    folder.mkdir()
    for subtask in ("action_count", "moving_direction", "episodic_reasoning"):
        rows = [
            {"video": f"v{number}.mp4", "question": "How?", "candidates": ["a", "b", "c"], "answer": "a"}
            for number in range(200)
        ]
        rows[5] |= {"candidates": ["a", "b", "b"]}
        (folder / f"{subtask}.json").write_text(json.dumps(rows))
    rows[7] |= {"candidates": ["a", "a", "b"]}
    rows[9] |= {"video": ""}
    (folder / "action_count.json").write_text(json.dumps(rows))


def test_an_mvbench_import_names_the_file_of_a_fault_and_counts_omitted_rows(tmp_path):
    write_mvbench(tmp_path / "json")
    source, target = str(tmp_path / "json"), str(tmp_path / "jobs.parquet")

    refused = reelabel({}, "manifest", "import", source, target, "--layout", "mvbench", "--videos", "/v")
    kept = reelabel({}, "manifest", "import", source, target, "--layout", "mvbench", "--videos", "/v", "--keep-going")

    assert (refused.returncode, kept.returncode) == (2, 1)
    assert "first action_count.json, question 7 (job_id 'action_count_7')" in refused.stderr
    assert "video_uri is empty. 1 row, first action_count.json, question 9 (job_id 'action_count_9')" in refused.stderr
    assert f"Left out {source}/episodic_reasoning.json: 200 questions about pictures, not videos." in kept.stdout
    assert "Merged repeated wrong choices in 2 questions" in kept.stdout
    assert "moving_direction.json, question 5" in kept.stdout
    assert len(pl.read_parquet(target)) == 398


def test_the_file_of_an_unknown_mvbench_subtask_is_named(tmp_path):
    path = tmp_path / "juggling.json"
    path.write_text("[]")

    refused = reelabel({}, "manifest", "import", str(path), str(tmp_path / "x.parquet"), "--layout", "mvbench")

    assert f"{path}: the video folder of subtask juggling is unknown" in refused.stderr
