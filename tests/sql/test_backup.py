"""The commands of docs/operations.md, with the programs of the embedded Postgres."""

import subprocess

from infra.database.connect import connected
from infra.embedded import postgres_folder
from infra.settings import DatabaseSettings
from sql.migrate import downgrade
from tasks.database.schema import check_schema
from tasks.results.audit import audit_jobs
from tasks.results.write import ShardWriter
from tests.results.conftest import run
from tests.results.rows import SCOPE, failure, job, result

__all__ = ["run"]


def program(name, *arguments):
    subprocess.run([str(postgres_folder() / name), *arguments], check=True, capture_output=True, timeout=300)


def test_a_backup_is_restored_with_every_row(database_url, db, run, tmp_path):
    jobs = [job("a"), job("b")]
    ShardWriter(db, run).write(results=[result(jobs[0])], failures=[failure(jobs[1])])
    backup = str(tmp_path / "reelabel.dump")

    program("pg_dump", "--format=custom", f"--file={backup}", database_url)
    downgrade(database_url)
    program("pg_restore", "--clean", "--if-exists", "--exit-on-error", f"--dbname={database_url}", backup)

    with connected(DatabaseSettings(url=database_url)) as restored:
        check_schema(restored)
        assert audit_jobs(restored, SCOPE, jobs=jobs).is_reconciled
