"""Whoever follows a job from its manifest to its row has few files to read."""

from tools.files_crossed import follow_jobs

MOST = 59


def test_a_jobs_way_from_manifest_to_row_crosses_few_files():
    way, _ = follow_jobs()

    files = [file for file, _ in way]
    assert {"tasks/manifest/digests.py", "tasks/results/write.py"} <= {*files}
    assert len(files) <= MOST, files
