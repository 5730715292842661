"""What a description costs is told by step."""

from tasks.description.cost import DescriptionCost


def test_costs_are_summed_and_their_times_are_told_by_stage():
    cost = DescriptionCost(frames_decoded=3, fetch_ms=1.5, cache_write_ms=2.0) + DescriptionCost(cache_write_ms=3.0)

    times_ms = cost.by_stage()

    assert cost.frames_decoded == 3
    assert {stage: ms for stage, ms in times_ms.items() if ms} == {"fetch": 1.5, "cache write": 5.0}
    assert {"decode", "cache read", "embed", "scenes", "describe"} < times_ms.keys()
