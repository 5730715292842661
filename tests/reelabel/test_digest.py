"""Digests name what is stored: they must not change."""

from reelabel.digest import hash64, json_digest


def test_digests_are_those_of_all_releases():
    assert json_digest({"b": [1, 2.5], "a": "é"}) == json_digest({"a": "é", "b": [1, 2.5]})
    assert json_digest({"b": [1, 2.5], "a": "é"}) == "123b424b7606d08d0756074e1f760511"
    assert hash64("a.mp4") == 9_515_143_989_430_994_452
