"""Every bomb, and a hundred files with random timestamps, go through a whole run: no engine dies, nothing is lost."""

import json

import polars as pl
import pytest
from sqlalchemy import select

from tasks.database.tables import FAILURE, RUN
from tasks.demo.clips import make_demo
from tasks.domain import RunPhase
from tests.bombs import BOMBS
from tests.command_line import reelabel
from tests.timestamps import fuzzed_timestamps

FUZZED = 100
# Not `inference_failed`: no question is to kill an engine, not even to be found and to fail alone.
CODES = {"video_too_large", "video_unreadable", "video_empty", "no_frames", "decoder_timeout", "prompt_too_long"}


@pytest.fixture(scope="module")
def hostile_manifest(tmp_path_factory):
    """A manifest with a job on each of the hostile files and three on a good clip; and the ids of these three."""
    folder = tmp_path_factory.mktemp("hostile")
    good = make_demo(folder, seed=7, clips=1, uri_prefix=str(folder)).drop("answer")
    videos = {f"bomb {name}": make() for name, make in BOMBS.items()}
    videos |= {f"fuzzed {seed}": fuzzed_timestamps(seed) for seed in range(FUZZED)}
    jobs = [good]
    for name, data in videos.items():
        path = folder / name.replace(" ", "-")
        path.write_bytes(data)
        jobs.append(good.head(1).with_columns(job_id=pl.lit(name), video_uri=pl.lit(str(path))))
    pl.concat(jobs).write_parquet(folder / "hostile.parquet")
    return str(folder / "hostile.parquet"), good["job_id"].to_list()


@pytest.mark.system
def test_bombs_end_as_labels_or_explained_failures_and_kill_no_engine(environment, engine, hostile_manifest):
    path, good = hostile_manifest
    quick = {"REELABEL_EXTRACT_TIMEOUT_S": "4", "REELABEL_EXTRACT_MEMORY_MIB": "2048"}

    completed = reelabel(environment | quick, "classify", path, "--dataset", "hostile")

    jobs = len(good) + len(BOMBS) + FUZZED
    report = json.loads(reelabel(environment, "audit", "last", "--json").stdout)
    assert completed.returncode == 1, completed.stderr  # finished, with failures
    assert f"Reconciled: {jobs} jobs = " in completed.stdout
    assert (report["jobs"], report["labels"] + report["failures"], report["doubled"]) == (jobs, jobs, 0)
    with engine.connect() as connection:
        failed = connection.execute(select(FAILURE).where(FAILURE.c.dataset == "hostile")).mappings().all()
        run = connection.execute(select(RUN).where(RUN.c.dataset == "hostile")).mappings().one()
    assert run["wall_ms"].get(RunPhase.RESTART, 0) == 0
    codes = {row["code"] for row in failed}
    assert "video_too_large" in codes
    assert codes <= CODES
    assert all(row["message"] for row in failed)
    assert not {row["job_id"] for row in failed} & {*good}
