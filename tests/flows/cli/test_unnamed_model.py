"""Without a model named, every command that would ask one refuses in a sentence; only the demo has its own."""

import polars as pl
import pytest

from tests.clips import write_clip
from tests.command_line import reelabel

NAMES = ("REELABEL_MODEL_NAME", "REELABEL_DESCRIBE_MODEL")


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    """A video, and a manifest of one job about it."""
    folder = tmp_path_factory.mktemp("unnamed")
    video, manifest = write_clip(folder / "a.mp4", frames=3), folder / "jobs.parquet"
    row = {"job_id": "a", "video_uri": str(video), "prompt": "Which colour?", "choices": ["red", "blue"]}
    pl.DataFrame([row | {"answer": "red"}]).write_parquet(manifest)
    return {"VIDEO": str(video), "MANIFEST": str(manifest)}


@pytest.mark.parametrize(
    ("command", "what"),
    [
        ("classify MANIFEST", "model"),
        ("describe MANIFEST", "image-text model"),
        ("serve --port 0", "image-text model"),
        ("worker infer", "model"),
        ("manifest survey MANIFEST", "model"),
        ("frames VIDEO", "model"),
        ("prompt a --manifest MANIFEST", "model"),
        ("search red", "image-text model"),
    ],
)
def test_a_command_refuses_to_run_without_a_model(own_environment, paths, command, what):
    unnamed = {name: value for name, value in own_environment.items() if name not in NAMES}

    completed = reelabel(unnamed, *(paths.get(word, word) for word in command.split()))

    assert completed.returncode == 2, completed.stdout + completed.stderr
    assert f"No {what} is named; " in completed.stderr


@pytest.mark.parametrize("command", ["classify", "describe"])
def test_a_run_is_refused_before_it_starts_services(own_environment, paths, tmp_path, command):
    unnamed = {name: value for name, value in own_environment.items() if name not in NAMES}
    away = {"REELABEL_HOME": str(tmp_path / "home"), "REELABEL_DATABASE_URL": "postgresql://nobody@127.0.0.1:9/none"}

    completed = reelabel(unnamed | away, command, paths["MANIFEST"])

    assert (completed.returncode, "model is named; " in completed.stderr) == (2, True), completed.stderr
    assert not (tmp_path / "home").exists()
