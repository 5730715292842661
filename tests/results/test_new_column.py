"""A field that is added to a record, as docs/extending.md adds one, reaches tables, rows, exports and selections."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from sql.migrate import downgrade

ROOT = Path(__file__).parents[2]
SCRIPT = """
import sys
from types import ModuleType

name, path, field, url = sys.argv[1:]
module = ModuleType(name)
sys.modules[name] = module
code = open(path).read().rstrip() + "\\n    " + field + "\\n"
exec(compile(code, path, "exec"), vars(module))

from sqlalchemy import create_engine, text

from infra.settings import DatabaseSettings
from infra.database.connect import connected
from sql.migrate import upgrade
from tasks.results.read import read_results
from tasks.results.runs import open_run
from tasks.results.write import RunKey, ShardWriter
from tests.results.rows import FACTS, SCOPE, SPEC, job, result
from uuid import uuid4

upgrade(url)
with connected(DatabaseSettings(url=url)) as db:
    run = RunKey(**SCOPE.key, run_id=uuid4(), host="h")
    open_run(db, run_id=run.run_id, spec=SPEC, facts=FACTS)
    ShardWriter(db, run).write([result(job("a"), lookup_ms=1.5)], [])
    with db.connect() as connection:
        found = connection.execute(text("SELECT job_id FROM reelabel.job_state WHERE lookup_ms > 1")).scalars().all()
    print(found, read_results(db, SCOPE)["lookup_ms"].to_list())
"""


@pytest.mark.usefixtures("db")
def test_one_line_adds_a_column(database_url):
    page = (ROOT / "docs" / "extending.md").read_text()
    [field] = re.findall(r"# tasks/domain/provenance\.py\nclass .*\n +\.\.\.\n +(.*)\n", page)
    downgrade(database_url)
    path = ROOT / "tasks" / "domain" / "provenance.py"

    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, "tasks.domain.provenance", path, field, database_url],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )

    assert run.stdout == "['a'] [1.5]\n", run.stderr
