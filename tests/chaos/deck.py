"""The faults of each trial, dealt so that every kind is injected."""

from itertools import islice

from tests.chaos.faults import FAULTS

_MAX_FAULTS = 4


def possible(names, world, **has):
    """Return the named faults whose requirements a world meets.

    Args:
        names: Names of faults.
        world: The world.
        has: Whether it meets a requirement; those left out, it meets.
    """
    has |= {"disk": world.disk is not None}
    kinds = [fault for fault in FAULTS if fault.name in names and has.get(fault.needs, True)]
    assert kinds, f"None of {names} can be injected here."
    return kinds


def deal(kinds, rng):
    """Yield whether a worker runs the next trial, and its faults.

    Faults are dealt like cards from a deck; a newly shuffled one is added when too few are left.
    """
    deck = []
    while True:
        by_worker = rng.random() < 0.5 or all(fault.needs == "worker" for fault in kinds)
        fitting = [fault for fault in kinds if by_worker or fault.needs != "worker"]
        wanted = rng.randint(1, _MAX_FAULTS)
        dealt = list(islice((fault for fault in deck if fault in fitting), wanted))
        if len(dealt) < wanted:
            deck += rng.sample(kinds, len(kinds))
            continue
        for fault in dealt:
            deck.remove(fault)
        yield by_worker, dealt
