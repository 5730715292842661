import pytest

from benchmarks.scale.measure import measure_scale

pytestmark = pytest.mark.system


def test_every_step_finds_what_was_made_up(services):
    row = measure_scale(4_000, services.database, on_progress=lambda _: None)

    assert (row.rows, row.shards, row.named) == (4_000, 40, 400)
    assert min(row.plan_peak_bytes, row.audit_peak_bytes, row.pending_peak_bytes) > 0
    assert min(row.leased_per_s, row.written_per_s) > 0
