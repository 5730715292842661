"""Trials one after the other, on one world, each with faults drawn so that every kind gets its turn."""

import random
import sys
from itertools import islice

from tests.chaos.faults import FAULTS
from tests.chaos.trial import Trial
from tests.chaos.world import opened

_MOST_FAULTS = 4


def run_suite(folder, *, trials, seed, engine, clips):
    """Break runs, and give what each came to as it ends."""
    rng = random.Random(seed)
    with opened(folder, engine=engine) as world:
        manifest, jobs = world.upload(clips, seed)
        log = folder / "deploy.log"
        with log.open("ab") as file:
            deployed = world.start([sys.executable, "-P", "-m", "flows.cli", "deploy"], file).wait(300)
        assert deployed == 0, f"`reelabel deploy` failed; see {log}"
        labels, usual_s = Trial(world, number=0, manifest=manifest, folder=folder).undisturbed()
        assert len(labels) == len(jobs)
        drawn = _draw(world, engine, rng)
        for number in range(1, trials + 1):
            trial = Trial(world, number=number, manifest=manifest, folder=folder)
            by_worker, faults = next(drawn)
            outcome = trial.broken(faults, rng, labels=labels, usual_s=usual_s, by_worker=by_worker)
            if not outcome.struck:  # the machine has become faster: faults came too late
                usual_s = outcome.ran_s
            yield outcome
            world.cancel_flow_runs()


def _draw(world, engine, rng):
    """Deal faults like cards, from a pack that is shuffled anew when it is used up."""
    has = {"": True, "engine": engine == "vllm", "disk": world.disk is not None}
    pack = []
    while True:
        by_worker = rng.random() < 0.5
        fitting = [fault for fault in FAULTS if has.get(fault.needs, by_worker)]
        wanted = rng.randint(1, _MOST_FAULTS)
        dealt = list(islice((fault for fault in pack if fault in fitting), wanted))
        if len(dealt) < wanted:
            pack += rng.sample(FAULTS, len(FAULTS))
            continue
        for fault in dealt:
            pack.remove(fault)
        yield by_worker, dealt
