"""A suite of trials, several per world, with faults drawn so that every kind is injected."""

import random
import sys

from tests.chaos.deck import deal, possible
from tests.chaos.faults import FAULTS
from tests.chaos.sessions.service import ENGINES as SESSION_ENGINES
from tests.chaos.sessions.suite import run_session_trials
from tests.chaos.trial import Trial
from tests.chaos.world import model_server, open_world

_BY_CHUNKS = 0.3
# The store of a world is small, and each trial leaves frames there; a description leaves embeddings, too.
_TRIALS_IN_A_WORLD = 8


def run_suite(folder, *, trials, seed, engine, clips, faults=tuple(fault.name for fault in FAULTS)):
    """Run trials with the named faults, and yield their outcomes.

    With the engine `encoder`, videos are described, and no question is asked; with one of live sessions, there is no
    run.
    """
    rng = random.Random(seed)
    if engine in SESSION_ENGINES:
        yield from run_session_trials(folder, trials=trials, rng=rng, engine=engine, faults=faults)
        return
    with model_server(folder, engine=engine) as model_url:
        for first in range(1, trials + 1, _TRIALS_IN_A_WORLD):
            numbers = range(first, min(first + _TRIALS_IN_A_WORLD, trials + 1))
            own = folder / f"from-{first}"
            own.mkdir()
            with open_world(own, model_url=model_url) as world:
                has = {"engine": engine != "openai", "cache": engine != "encoder", "sessions": False}
                kinds = possible(faults, world, **has)
                command = "describe" if engine == "encoder" else "classify"
                yield from _in_one_world(
                    world, own, numbers, seed=seed, kinds=kinds, clips=clips, rng=rng, command=command
                )


def _in_one_world(world, folder, numbers, *, seed, kinds, clips, rng, command):
    by_choices, jobs = world.upload(clips, seed)
    mixed = world.upload_mixed(jobs)
    log = folder / "deploy.log"
    with log.open("ab") as file:
        deployed = world.start([sys.executable, "-P", "-m", "flows.cli.main", "deploy"], file).wait(300)
    assert deployed == 0, f"`reelabel deploy` failed; see {log}"
    undisturbed = {}
    for number, (by_worker, faults) in zip(numbers, deal(kinds, rng), strict=False):
        by_chunks = command == "classify" and rng.random() < _BY_CHUNKS
        manifest = by_choices if by_chunks else mixed  # words about chunks make no answer
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
