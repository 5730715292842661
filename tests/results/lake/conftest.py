"""Lakes in each format, and runs to export to them."""

import json
import multiprocessing
import os
from uuid import uuid4

import deltalake
import polars as pl
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.utils.config import Config

from infra.settings import ResultsSettings
from tasks.results.lake.delta import _storage_options
from tasks.results.lake.export import export_ended_runs
from tasks.results.runs import close_run, open_run
from tasks.results.write import RunKey, ShardWriter
from tests.plans.conftest import make_plan
from tests.results.lake import other_process
from tests.results.rows import FACTS, SPEC, failure, job, result

__all__ = ["make_plan"]

ODD = "clips/ä %41=1"
FORMATS = ["parquet", "delta", "iceberg"]


def labelled(db, dataset, *names, state="done"):
    """A run that has labelled all but the last of some jobs, which has failed."""
    key = RunKey(run_id=uuid4(), dataset=dataset, spec_id=SPEC.spec_id, host="h")
    open_run(db, run_id=key.run_id, spec=SPEC, facts=FACTS | {"dataset": dataset})
    *done, failed = (job(name) for name in names)
    ShardWriter(db, key).write([result(each, (1 / 3, 2 / 3)) for each in done], [failure(failed)])
    if state != "running":
        close_run(db, key.run_id, state=state, message="")
    return key


def run_elsewhere(function, db, lake, argument):
    """Run a function of `other_process` in one, forked by a server that has imported it; returns its exit code."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([other_process.__name__])
    url = db.url.render_as_string(hide_password=False)
    arguments = (dict(os.environ), function, url, lake.store, lake.settings, argument)
    process = context.Process(target=other_process.run_in, args=arguments)
    process.start()
    process.join()
    return process.exitcode


class Lake:
    """A lake in one format, and what is in it."""

    def __init__(self, db, objects, store, target, form):
        self.db, self.objects, self.store, self.target = db, objects, store, target
        chosen = "iceberg:lake.reelabel" if form == "iceberg" else form
        self.settings = ResultsSettings(export_uri=target, export_format=chosen)

    def export(self, dataset="d"):
        return export_ended_runs(self.db, self.store, self.settings, dataset=dataset)

    def files(self):
        return sorted(found.uri for found in self.objects.list(self.target))

    def rows(self, table="labels"):
        """The rows of all runs, in the order of job ids."""
        if self.settings.lake == "delta":
            path = self.objects.local_path(f"{self.target}/{table}") or f"{self.target}/{table}"
            found = deltalake.DeltaTable(str(path), storage_options=_storage_options(self.store))
            rows = pl.from_arrow(found.to_pyarrow_table())
        elif self.settings.lake == "iceberg":
            rows = pl.from_arrow(load_catalog("lake").load_table(f"reelabel.{table}").scan().to_arrow())
        else:
            uris = [uri for uri in self.files() if uri.endswith(".parquet") and f"/{table}/" in uri]
            rows = pl.concat(pl.read_parquet(self.objects.read(uri)) for uri in uris)
        return rows.sort("job_id")

    def listed(self, key):
        return json.loads(self.objects.read(f"{self.target}/runs/{key.run_id}.json"))


@pytest.fixture(params=["folder", "s3"])
def target(request, tmp_path, store_settings):
    return (
        f"file://{tmp_path}/a lake".replace(" ", "%20") if request.param == "folder" else f"{store_settings.uri}/a lake"
    )


@pytest.fixture(autouse=True)
def iceberg_catalog(tmp_path, monkeypatch):
    """An SQL catalog `lake` in PyIceberg's configuration."""
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__WAREHOUSE", f"file://{tmp_path}/warehouse")
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())


@pytest.fixture(params=FORMATS)
def lake(request, db, objects, store_settings, target):
    return Lake(db, objects, store_settings, target, request.param)


@pytest.fixture(params=FORMATS)
def local(request, db, objects, store_settings, tmp_path):
    """A lake in a folder."""
    return Lake(db, objects, store_settings, f"file://{tmp_path}/lake", request.param)
