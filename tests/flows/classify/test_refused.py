"""Runs that are refused before anything is asked or written."""

import polars as pl
import pytest

from reelabel.sources.object_store import ObjectStore
from tests.command_line import reelabel
from tests.flows.runs import count_labels

pytestmark = pytest.mark.xdist_group("classify")  # they share a run


def test_a_manifest_of_the_same_name_does_not_replace_labels(by_server, manifest, own_services, tmp_path):
    name = "named.parquet"
    few = pl.read_parquet(ObjectStore(own_services.store).read(manifest)).head(3)
    (tmp_path / "first").mkdir()
    few.write_parquet(tmp_path / "first" / name)
    first = reelabel(by_server, "classify", str(tmp_path / "first" / name))
    other = pl.DataFrame(
        {"job_id": ["clip-0000-colour"], "video_uri": ["x.mp4"], "prompt": ["?"], "choices": [["yes", "no"]]}
    )
    other.write_parquet(tmp_path / name)

    refused = [reelabel(by_server, "classify", str(tmp_path / name), *options) for options in ([], ["--dataset", ""])]

    assert "Reconciled" in first.stdout
    for each in refused:
        assert each.returncode == 2
        assert "holds labels of another manifest for 1 of these job ids" in each.stderr


def test_a_bad_manifest_is_refused_before_anything_is_written(environment, tmp_path, engine):
    path = tmp_path / "bad.parquet"
    pl.DataFrame({"job_id": ["a", "a"], "video_uri": ["x", "y"], "prompt": ["?", "?"]}).write_parquet(path)

    refused = reelabel(environment, "classify", str(path))

    assert refused.returncode == 2
    assert "job_id is not unique. 2 rows" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert count_labels(engine, "bad") == 0


def test_a_model_folder_without_weights_is_refused(environment, manifest, tmp_path):
    (tmp_path / "config.json").write_text("{}")

    refused = reelabel(environment, "classify", manifest, "--model", str(tmp_path))

    assert refused.returncode == 2
    assert "no weights" in refused.stderr
