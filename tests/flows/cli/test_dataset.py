"""`reelabel dataset`: by the owner's login."""

import os

from infra.embedded import export
from tasks.results.audit import audit_jobs
from tasks.results.runs import close_run
from tasks.results.write import ShardWriter
from tests.command_line import reelabel
from tests.results.conftest import run
from tests.results.rows import SCOPE, job, result

__all__ = ["run"]


def test_a_dataset_leaves_the_database_and_comes_back(services, database, db, run, tmp_path):
    environment = os.environ | export(services.model_copy(update={"database": database}))
    ShardWriter(db, run).write([result(job("a"))], [])

    refused = reelabel(environment, "dataset", "archive", "d", f"{tmp_path}/d")
    close_run(db, run.run_id, state="done", message="")
    archived = reelabel(environment, "dataset", "archive", "d", f"{tmp_path}/d")
    left = audit_jobs(db, SCOPE, jobs=[job("a")])
    restored = reelabel(environment, "dataset", "restore", f"{tmp_path}/d")

    assert refused.returncode == 2
    assert f"Run {run.run_id} of dataset d is in progress" in refused.stderr
    assert archived.stdout == f"3 rows of dataset d are in {tmp_path}/d, and no longer in the database.\n"
    assert left.missing == 1
    assert restored.stdout == f"Dataset d has its 3 rows from {tmp_path}/d.\n", restored.stderr
    assert audit_jobs(db, SCOPE, jobs=[job("a")]).is_reconciled
