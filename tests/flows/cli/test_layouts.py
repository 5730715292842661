import json
from pathlib import Path

import polars as pl
import pytest

from flows.cli.manifest import ImportOptions, import_manifest, read_source
from reelabel.errors import ConfigurationError

CSV = "id,file,q,a,b,right\n1,clip.mp4,Day or night?,day,night,B\n"
COLUMNS = ["job_id=id", "video_uri=file", "prompt=q", "choices=a+b", "answer=right"]


def test_videos_are_looked_up_beside_their_questions_by_default(tmp_path):
    (tmp_path / "quiz.csv").write_text(CSV)
    source = str(tmp_path / "quiz.csv")

    imported = read_source(source, ImportOptions(layout="csv", column=COLUMNS))
    away = read_source(source, ImportOptions(layout="csv", videos="s3://b/clips", column=COLUMNS))

    assert imported.frame["video_uri"].to_list() == [f"{tmp_path}/clip.mp4"]
    assert away.frame["video_uri"].to_list() == ["s3://b/clips/clip.mp4"]


def test_a_benchmark_becomes_a_manifest(tmp_path, capsys):
    (tmp_path / "quiz.csv").write_text(CSV)
    target = tmp_path / "jobs.parquet"

    import_manifest(str(tmp_path / "quiz.csv"), str(target), ImportOptions(layout="csv", column=COLUMNS))

    assert "Wrote 1 job to" in capsys.readouterr().out
    assert pl.read_parquet(target)["answer"].to_list() == ["night"]


@pytest.mark.parametrize("source", [".", "*/clip.mp4"])
def test_videos_are_found_in_the_folders_that_they_must_lie_in_also_from_above(tmp_path, monkeypatch, source):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "clip.mp4").touch()
    monkeypatch.setenv("REELABEL_EXTRACT_ALLOW_ROOTS", json.dumps([str(tmp_path / "a"), str(tmp_path / "b")]))
    monkeypatch.chdir(tmp_path)

    import_manifest(source, "jobs.parquet", ImportOptions(layout="folder", prompt="Day?", choices="yes|no"))

    assert [Path(uri).parent.name for uri in pl.read_parquet("jobs.parquet")["video_uri"]] == ["a", "b"]


def test_choices_of_all_videos_may_contain_bars_in_a_json_list(tmp_path):
    (tmp_path / "clip.mp4").touch()

    options = [ImportOptions(layout="folder", prompt="Day?", choices=text) for text in ('["yes", "no|never"]', "[1]")]

    assert read_source(str(tmp_path), options[0]).rows[0]["choices"] == ["yes", "no|never"]
    with pytest.raises(ConfigurationError, match=r"--choices '\[1\]' contains a value that is not a string"):
        read_source(str(tmp_path), options[1])


@pytest.mark.parametrize(
    ("source", "options"),
    [
        ("s3://b/jobs.csv", {}),
        ("https://h/batch.jsonl", {}),
        ("s3://b/test.parquet", {"layout": "videomme"}),
        ("s3://b/export.json", {"layout": "label-studio", "manifest": "jobs.parquet"}),
    ],
)
def test_questions_elsewhere_must_be_copied_first(source, options):
    with pytest.raises(ConfigurationError, match=f"^{source} is not a local path; copy it to this machine"):
        read_source(source, ImportOptions(**options))


def test_a_reviewed_manifest_need_not_lie_where_videos_must(tmp_path, monkeypatch):
    job = {"job_id": "1", "video_uri": "s3://b/a.mp4", "prompt": "Which?", "choices": ["red", "blue"]}
    pl.DataFrame([job]).write_parquet(tmp_path / "jobs.parquet")
    answer = {"from_name": "answer", "value": {"choices": ["red"]}}
    task = {"data": {"job_id": "1"}, "annotations": [{"result": [answer]}]}
    (tmp_path / "export.json").write_text(json.dumps([task]))
    monkeypatch.setenv("REELABEL_EXTRACT_ALLOW_ROOTS", json.dumps([str(tmp_path / "videos")]))
    monkeypatch.chdir(tmp_path)

    import_manifest("export.json", "new.parquet", ImportOptions(layout="label-studio", manifest="jobs.parquet"))

    assert pl.read_parquet("new.parquet")["answer"].to_list() == ["red"]


@pytest.mark.parametrize(
    ("layout", "columns", "message"),
    [
        ("next", [], "Unknown layout next; use one of nextqa, mvbench, videomme, streamingbench, csv, label-studio"),
        ("csv", ["prompt"], "--column prompt is malformed; use NAME=COLUMN"),
        ("nextqa", ["prompt=q"], "--column is for --layout csv, webdataset, parquet, lerobot, folder; leave it out"),
    ],
)
def test_a_wrong_option_is_explained(tmp_path, layout, columns, message):
    (tmp_path / "quiz.csv").write_text(CSV)

    with pytest.raises(ConfigurationError, match=message):
        import_manifest(
            str(tmp_path / "quiz.csv"),
            str(tmp_path / "jobs.parquet"),
            ImportOptions(layout=layout, column=columns),
        )
