from threading import Event

import pytest

from infra.prefetch import prefetch


def test_items_come_in_order_even_if_none():
    assert list(prefetch(iter([3, None, 0, "", 5]))) == [3, None, 0, "", 5]
    assert list(prefetch([])) == []


def test_the_next_item_is_created_while_the_last_one_is_used():
    is_made = Event()

    def items():
        yield "first"
        is_made.set()
        yield "second"

    ahead = prefetch(items())

    assert next(ahead) == "first"
    assert is_made.wait(60)
    assert list(ahead) == ["second"]


def test_an_error_in_creating_an_item_is_raised_after_the_items_before_it():
    def items():
        yield 1
        raise KeyError("broken")

    ahead = prefetch(items())

    assert next(ahead) == 1
    with pytest.raises(KeyError, match="broken"):
        next(ahead)
