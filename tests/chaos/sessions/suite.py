"""Trials of live sessions, several per world and service."""

from contextlib import closing

from infra.embedded import ServiceName
from tests.chaos.deck import deal, possible
from tests.chaos.sessions.service import Service
from tests.chaos.sessions.trial import SessionTrial
from tests.chaos.world import open_world

_WANTED = frozenset({ServiceName.POSTGRES, ServiceName.S3})


def run_session_trials(folder, *, trials, rng, engine, faults):
    """Run trials with the named faults, and yield their outcomes."""
    with (
        open_world(folder, wanted=_WANTED) as world,
        closing(Service(world, folder, engine=engine)) as world.service,
    ):
        kinds = possible(faults, world, run=False, worker=False, cache=False)
        for number, (_, dealt) in zip(range(1, trials + 1), deal(kinds, rng), strict=False):
            yield SessionTrial(world, folder, number=number).run_with_faults(dealt, rng)
