"""Shards that end quickly are described several by one task; a fault of one is not charged to the others."""

from types import SimpleNamespace

import pytest

from flows.run.executors.describe_executor import _Grouping, _report_of
from flows.shard.describe import ShardGroup
from infra.errors import LeaseLostError
from reelabel.errors import StoreUnavailableError


def leased(token):
    return SimpleNamespace(lease=SimpleNamespace(token=token, shard_index=token))


def sizes(grouping, shards):
    return [group and len(group.shards) for group in grouping.groups(shards)]


def test_groups_grow_while_shards_end_quickly_and_shrink_when_they_do_not():
    grouping = _Grouping()
    found = []
    for took_s in (0.1, 0.1, 0.1, 0.8, 1.6, 60.0):
        found.append(grouping.size)
        grouping.learn(grouping.size, took_s)

    assert found == [1, 2, 4, 8, 16, 16]
    assert grouping.size == 1


def test_what_is_leased_is_not_kept_waiting_for_more():
    shards = [leased(number) for number in range(5)]

    assert sizes(_Grouping(size=2), [*shards[:3], None, *shards[3:]]) == [2, 1, None, 2]
    assert sizes(_Grouping(size=2), shards[:1]) == [1]
    assert sizes(_Grouping(), [None]) == [None]


def test_a_fault_is_that_of_the_shard_at_which_the_task_has_failed():
    group = ShardGroup(tuple(map(leased, range(4))), ended={0: "a report", 1: LeaseLostError("Another one has it.")})

    def fail():
        raise StoreUnavailableError("It is away.")

    future = SimpleNamespace(result=fail)

    assert _report_of(group, group.shards[0], future) == "a report"
    with pytest.raises(LeaseLostError):
        _report_of(group, group.shards[1], future)
    with pytest.raises(StoreUnavailableError):
        _report_of(group, group.shards[2], future)
    assert [each.lease.token for each in group.begun()] == [0, 1, 2]
    assert [each.lease.token for each in group.not_begun()] == [3]
