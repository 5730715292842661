import pytest

from benchmarks.scale.measure import measure_descriptions, measure_scale, measure_videos

pytestmark = pytest.mark.system


def test_every_step_finds_the_generated_rows(services):
    row = measure_scale(4_000, settings=services.database, on_progress=lambda _: None)

    assert (row["rows"], row["shards"], row["named"]) == (4_000, 40, 400)
    assert min(row["plan_peak_bytes"], row["audit_peak_bytes"], row["pending_peak_bytes"]) > 0
    assert row["written_per_s"] > 0


@pytest.mark.parametrize(("videos", "made"), [(1, 1), (900, 900), (700, 450)])
def test_every_job_is_answered_whatever_the_number_of_videos(services, videos, made):
    row = measure_videos(900, videos=videos, settings=services.database, on_progress=lambda _: None)

    assert (row["videos"], row["shards"]) == (made, 9)
    assert min(row["plan_peak_bytes"], row["answer_peak_bytes"]) > 0


def test_every_step_of_descriptions_finds_the_generated_rows(services):
    row = measure_descriptions(4_000, settings=services.database, on_progress=lambda _: None)

    assert (row["videos"], row["shards"]) == (4_000, 40)
    assert min(row["plan_files"], row["table_bytes"], row["catalogue_peak_bytes"]) > 0
