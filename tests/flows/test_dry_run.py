"""`classify --dry-run` ends as the run does: with its exit code, and with its refusal."""

from datetime import UTC, datetime

import polars as pl
import pytest
from sqlalchemy import select

from infra.database.connect import connected
from tasks.database.tables import RUN
from tasks.frame_cache.extractor import FrameExtractor
from tests.clips import make_clip
from tests.command_line import reelabel as run_command
from tests.flows.runs import logged
from tests.reelabel.sources.archives.test_hostile_headers import renamed, wild_tar, zipped

__all__ = ["make_clip"]

_NOBODY = "http://127.0.0.1:1/v1"


@pytest.fixture
def classify(served, tmp_path, monkeypatch):
    """Run `classify`, with a server that answers unless another is named."""
    monkeypatch.chdir(tmp_path)  # where lists of rejected rows are written
    environment = served | {"COLUMNS": "200"}
    return lambda *arguments, **settings: run_command(environment | settings, "classify", *arguments)


@pytest.fixture
def write(tmp_path, make_clip):
    """Write a manifest with one question for each video; None is a good one."""

    def write(name, *videos, prompt="Which?"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        rows = {
            "job_id": [f"j{number}" for number in range(len(videos))],
            "video_uri": [str(make_clip()) if video is None else video for video in videos],
            "prompt": [prompt] * len(videos),
            "choices": [["yes", "no"]] * len(videos),
        }
        pl.DataFrame(rows).write_parquet(path)
        return str(path)

    return write


def both(classify, *arguments, **settings):
    dry = classify(*arguments, "--dry-run", **settings)
    return dry, classify(*arguments, **settings)


def test_a_run_that_leaves_rows_out(classify, write):
    manifest = write("blemished.parquet", None, "")

    dry, real = both(classify, manifest, "--keep-going")

    assert (dry.returncode, real.returncode) == (1, 1), dry.stderr + real.stderr
    assert "Leaving out 1 invalid row, so that the run ends with exit code 1." in dry.stdout


@pytest.mark.system
def test_a_run_that_has_nothing_to_do_but_failures_to_report(classify, write):
    manifest = write("failed.parquet", None, "/no/video.mp4")
    classify(manifest)

    dry, real = both(classify, manifest)

    assert (dry.returncode, real.returncode) == (1, 1), dry.stderr + real.stderr
    assert "Would answer 0 jobs" in dry.stdout
    assert "1 of these failed, so that the run ends with exit code 1." in dry.stdout


@pytest.mark.system
def test_a_run_with_archives_that_claim_anything(classify, write, tmp_path):
    (tmp_path / "wild.tar").write_bytes(wild_tar())
    (tmp_path / "nameless.zip").write_bytes(renamed(zipped("a.mp4"), b"\0.mp4"))
    manifest = write("archives.parquet", None, *(f"{tmp_path}/{name}#a.mp4" for name in ("wild.tar", "nameless.zip")))

    dry, real = both(classify, manifest)

    assert (dry.returncode, real.returncode) == (1, 1), dry.stderr + real.stderr
    assert "2 archive_unreadable" in dry.stdout
    assert "Reconciled: 3 jobs = 1 label + 2 failures." in real.stdout
    assert "archive_unreadable" in real.stdout


@pytest.mark.system
def test_a_run_goes_on_after_an_error_that_nobody_foresaw(classify, write, make_clip, monkeypatch, own_services):
    odd, prepare = str(make_clip(name="odd.mp4", frames=24)), FrameExtractor.prepare

    def fail_odd(self, uri, *arguments, **options):
        if uri == odd:
            return {}["nobody foresees this"]
        return prepare(self, uri, *arguments, **options)

    manifest = write("odd.parquet", None, odd)
    with monkeypatch.context() as patch:
        patch.setattr(FrameExtractor, "prepare", fail_odd)
        run = classify(manifest)
    again = classify(manifest)

    assert (run.returncode, again.returncode) == (1, 0), run.stderr + again.stderr
    assert "Reconciled: 2 jobs = 1 label + 1 failure." in run.stdout
    assert "internal" in run.stdout
    assert "Reconciled: 2 jobs = 2 labels + 0 failures." in again.stdout
    with connected(own_services.database) as engine, engine.connect() as connection:
        of_run = select(RUN.c.run_id).where(RUN.c.dataset == "odd").order_by(RUN.c.started_at).limit(1)
        shown = logged(own_services.prefect, connection.execute(of_run).scalar_one())
    assert f"The extraction of {odd} failed with an unexpected KeyError" in shown
    assert 'test_dry_run.py", line' in shown
    assert "in fail_odd" in shown


@pytest.mark.parametrize(
    ("options", "settings", "message"),
    [
        (["--escalate-below", "fitted"], {}, "No margin was fitted for this spec"),
        ([], {"REELABEL_SERVER_URL": _NOBODY, "REELABEL_SERVER_MAX_ATTEMPTS": "1"}, _NOBODY),
    ],
)
def test_a_run_that_is_refused(classify, write, options, settings, message):
    dry, real = both(classify, write("refused.parquet", None), *options, **settings)

    assert (dry.returncode, real.returncode) == (2, 2), dry.stdout + real.stdout
    assert message in dry.stderr
    assert dry.stderr.strip() == real.stderr.strip()  # the first leaves a line for its progress


@pytest.mark.system
def test_a_run_that_would_replace_the_labels_of_another_manifest(classify, write):
    assert classify(write("one/same.parquet", None)).returncode == 0

    dry, real = both(classify, write("two/same.parquet", None, prompt="Which one?"))

    assert (dry.returncode, real.returncode) == (2, 2), dry.stdout + real.stdout
    assert "Dataset same holds labels of another manifest for 1 of these job ids" in dry.stderr
    assert dry.stderr.strip() == real.stderr.strip()  # the first leaves a line for its progress


def test_a_manifest_with_a_date(classify, write):
    year = f"{datetime.now(UTC):%Y}"
    manifest = write(f"dt={year}/dated.parquet", None).replace(year, "{scheduled_date:%Y}")

    dry, real = both(classify, manifest)
    again = classify(manifest, "--dry-run")

    assert (dry.returncode, real.returncode, again.returncode) == (0, 0, 0), dry.stderr + real.stderr
    assert f"Would answer 1 job on 1 video of dated-{year}." in dry.stdout
    assert f"Would answer 0 jobs on 0 videos of dated-{year}." in again.stdout
