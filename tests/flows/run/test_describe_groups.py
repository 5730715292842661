"""Shards that end quickly are described several by one task."""

from types import SimpleNamespace

from flows.run.descriptions import Grouping


def leased(token):
    return SimpleNamespace(lease=SimpleNamespace(token=token, shard_index=token))


def sizes(grouping, shards):
    return [group and len(group) for group in grouping.groups(shards)]


def test_groups_grow_while_shards_end_quickly_and_shrink_when_they_do_not():
    grouping = Grouping()
    found = []
    for took_s in (0.1, 0.1, 0.1, 0.8, 1.6, 60.0):
        found.append(grouping.size)
        grouping.learn(grouping.size, took_s)

    assert found == [1, 2, 4, 8, 16, 16]
    assert grouping.size == 1


def test_what_is_leased_is_not_kept_waiting_for_more():
    shards = [leased(number) for number in range(5)]

    assert sizes(Grouping(size=2), [*shards[:3], None, *shards[3:]]) == [2, 1, None, 2]
    assert sizes(Grouping(size=2), shards[:1]) == [1]
    assert sizes(Grouping(), [None]) == [None]
