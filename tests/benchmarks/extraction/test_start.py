from benchmarks.extraction.start import measure_start
from tests.clips import make_clip

__all__ = ["make_clip"]


def test_fresh_processes_are_timed_beside_plain_pyav(make_clip):
    rows = measure_start(make_clip(), rounds=1)

    assert [row.work.partition(":")[0] for row in rows] == ["PyAV", "ours", "PyAV and NumPy", "a decoding process"]
    assert all(row.wall_ms > 0 and row.cpu_ms > 0 for row in rows)
