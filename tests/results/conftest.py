from uuid import uuid4

import pytest

from tasks.results.runs import open_run
from tasks.results.write import RunKey
from tests.results.rows import FACTS, SPEC


@pytest.fixture
def run(db):
    key = RunKey(run_id=uuid4(), dataset="d", spec_id=SPEC.spec_id, host="h")
    open_run(db, run_id=key.run_id, spec=SPEC, facts=FACTS)
    return key
