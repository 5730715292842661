"""A job's way from its manifest to its row stays short enough to be read."""

import pytest

from tools.files_crossed import follow_jobs

MOST_FILES = 40


@pytest.mark.system
@pytest.mark.timeout(3600)
def test_a_job_crosses_few_files_of_flows_and_tasks():
    way, _ = follow_jobs()

    crossed = [file for file, _ in way if file.startswith(("flows/", "tasks/"))]
    assert {"flows/shard/infer.py", "tasks/results/write.py"} <= {*crossed}
    assert len(crossed) <= MOST_FILES, crossed
