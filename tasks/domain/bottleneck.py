"""Name the bottleneck of a run, and the setting to change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tasks.domain.ledger import RunPhase

if TYPE_CHECKING:
    from tasks.domain.cost import RunCost

_LONG_LOAD = 0.5
_MUCH_WAITING = 0.1  # the most that an engine could gain by never waiting
_WHOLE_CORE = 0.9  # with the GIL, a process uses hardly more than one core
_INPUT = {RunPhase.FETCH, RunPhase.DECODE, RunPhase.CACHE_WRITE, RunPhase.CACHE_READ}

_ADVICE = {
    RunPhase.FETCH: ("fetching", "raise extract.processes (fetching needs little CPU), or move the videos closer"),
    RunPhase.CACHE_WRITE: ("writing frame files", "choose a cheaper store.encoding, or move the store closer"),
    RunPhase.CACHE_READ: ("reading frame files", "move the store closer, or choose another store.encoding"),
    RunPhase.PREPROCESS: ("preprocessing", "lower sampling.num_frames or sampling.max_pixels"),
    RunPhase.DATABASE: ("the database", "move it closer, or raise shard.target_jobs"),
    RunPhase.SCHEDULE: ("the work between shards", "raise shard.target_jobs"),
    RunPhase.RESTART: ("its own restarts", "check its log for the cause"),
}


def describe_bottleneck(cost: RunCost, *, processes: int, cores: int, own_cores: float = 0.0) -> str:
    """Say in one sentence what to change first; empty if the run held no engine.

    Args:
        cost: Where the time went.
        processes: Decoding processes of the run.
        cores: CPU cores that the run may use.
        own_cores: Average number of cores used by the run's own process, without its decoders and the engine.
    """
    if not cost.loaded_ms:
        return ""
    load = cost.wall_ms.get(RunPhase.LOAD, 0.0) / cost.held_ms
    if load > _LONG_LOAD:
        return f"Loading the model took {load:.0%} of the time the engine was held: put more jobs into one run."
    waited = 1.0 - cost.busy
    if waited < _MUCH_WAITING:
        device = "a larger or faster GPU" if cost.gpus else "a GPU"
        fewer = "fewer frames (sampling.num_frames)"
        return f"The engine was busy {cost.busy:.0%} of the time: {device}, or {fewer}, would help."
    part, share = cost.waits[0]
    what, advice = ("decoding", _more_decoding(processes, cores)) if part is RunPhase.DECODE else _ADVICE[part]
    if part in _INPUT and own_cores >= _WHOLE_CORE:
        advice = (
            "the run's own process, which dispatches the videos, is saturated: "
            "extract in several flows (run.executor, run.extract_flows)"
        )
    return f"The engine waited {waited:.0%} of the time, {share:.0%} for {what}: {advice}."


def _more_decoding(processes: int, cores: int) -> str:
    if processes < cores:
        return f"raise extract.processes from {processes} to {cores}, the number of cores"
    return "give the run more cores, or run extraction on more machines"
