"""A suite of trials, several per world, with faults drawn so that every kind is injected."""

import random
import sys
from itertools import islice

from tests.chaos.faults import FAULTS
from tests.chaos.trial import Trial
from tests.chaos.world import model_server, open_world

_MAX_FAULTS = 4
_BY_CHUNKS = 0.3
_TRIALS_IN_A_WORLD = 15  # its store is small, and each trial leaves frames there


def run_suite(folder, *, trials, seed, engine, clips, faults=tuple(fault.name for fault in FAULTS)):
    """Run trials with the named faults, and yield their outcomes.

    With the engine `towers`, videos are described, and no question is asked.
    """
    rng = random.Random(seed)
    with model_server(folder, engine=engine) as model_url:
        for first in range(1, trials + 1, _TRIALS_IN_A_WORLD):
            numbers = range(first, min(first + _TRIALS_IN_A_WORLD, trials + 1))
            own = folder / f"from-{first}"
            own.mkdir()
            with open_world(own, model_url=model_url) as world:
                has = {"engine": engine != "openai", "disk": world.disk is not None, "cache": engine != "towers"}
                kinds = [fault for fault in FAULTS if fault.name in faults and has.get(fault.needs, True)]
                assert kinds, f"None of {faults} can be injected here."
                command = "describe" if engine == "towers" else "classify"
                yield from _in_one_world(
                    world, own, numbers, seed=seed, kinds=kinds, clips=clips, rng=rng, command=command
                )


def _in_one_world(world, folder, numbers, *, seed, kinds, clips, rng, command):
    manifest, jobs = world.upload(clips, seed)
    log = folder / "deploy.log"
    with log.open("ab") as file:
        deployed = world.start([sys.executable, "-P", "-m", "flows.cli.main", "deploy"], file).wait(300)
    assert deployed == 0, f"`reelabel deploy` failed; see {log}"
    undisturbed = {}
    for number, (by_worker, faults) in zip(numbers, _draw(kinds, rng), strict=False):
        by_chunks = command == "classify" and rng.random() < _BY_CHUNKS
        parts = {"manifest": manifest, "folder": folder, "command": command, "by_chunks": by_chunks}
        if parts["by_chunks"] not in undisturbed:
            undisturbed[parts["by_chunks"]] = Trial(world, number=0, **parts).run_undisturbed()
        labels, usual_s = undisturbed[parts["by_chunks"]]
        assert len(labels) == len(jobs)
        trial = Trial(world, number=number, **parts)
        outcome = trial.run_with_faults(faults, rng, labels=labels, usual_s=usual_s, by_worker=by_worker)
        if not outcome.struck:  # the run ended before the first fault, so the machine has become faster
            undisturbed[parts["by_chunks"]] = labels, outcome.ran_s
        yield outcome
        world.cancel_flow_runs()


def _draw(kinds, rng):
    """Deal faults like cards from a deck, adding a newly shuffled deck when too few are left."""
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
