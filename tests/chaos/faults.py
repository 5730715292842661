"""The faults that can be injected, by name."""

import os
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from infra.embedded import ServiceName
from tests.chaos.files import (
    age_frame_files,
    forge_frame_files,
    forge_index_files,
    forge_plan_files,
    swap_frame_files,
    swap_index_files,
    swap_plan_shards,
    truncate_frame_files,
    truncate_index_files,
    truncate_plan_files,
)
from tests.chaos.world import kill

_DURATION_S = (1.0, 5.0)
_AWAY_S = (3.0, 12.0)
_FORWARD_LEASES = """
UPDATE reelabel.shard SET lease_until = clock_timestamp() - interval '1 second' WHERE lease_until > clock_timestamp()
"""
_FLOW_COMMANDS = (
    "prefect.flow_engine",
    "prefect.engine",
    "flow-run execute",
)  # command lines of Prefect's flow processes

_MODEL_COMMANDS = ("-m reelabel_engine", "tests/stub_engine.py")


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of fault.

    Attributes:
        strike: Injects the fault, given the world, the run's process id and a random generator; returns whether it did,
            since a process that does not exist yet cannot be killed.
        needs: Requirement: `engine` (the run has its own), `worker` (it runs the flow), `disk`, `cache` (it
            strikes before the run begins, in a cache that is full), `run` or `sessions` (there are some).
    """

    name: str
    strike: object = field(repr=False)
    needs: str = ""


def _processes(pid):
    """Yield a process and its descendants, with their command lines."""
    with suppress(OSError):
        yield pid, Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for child in (thread / "children").read_text().split():
                yield from _processes(int(child))


def _below(roots, *words):
    """List processes in these process trees whose command line contains one of the words."""
    trees = [_processes(root) for root in roots if root is not None]
    return [pid for tree in trees for pid, command in tree if any(word in command for word in words)]


def _kill_one(pids, rng):
    return bool(pids) and kill(rng.choice(pids))


def _kill_flow(world, pid, rng):
    below = _below([world.pid(ServiceName.WORKER)], *_FLOW_COMMANDS)
    return _kill_one(below or [pid], rng)


def _kill_decoder(world, pid, rng):
    return _kill_one(_below([pid, world.pid(ServiceName.WORKER)], "reelabel.pool.child"), rng)


def _kill_engine(world, pid, rng):
    return _kill_one(_below([pid, world.pid(ServiceName.WORKER)], *_MODEL_COMMANDS), rng)


def _kill_worker(world, _pid, _rng):
    struck = [kill(each) for each in _below([world.pid(ServiceName.WORKER)], "")]
    return any(struck)


def _kill_service(name):
    def strike(world, _pid, _rng):
        pid = world.pid(name)
        return pid is not None and kill(pid)

    return strike


def _kill_several(world, pid, rng):
    struck = [fault.strike(world, pid, rng) for fault in rng.sample(_KILLS, 3)]
    return sum(struck) > 1


def _slow_store(world, _pid, rng):
    with world.store.slow(rng.uniform(0.05, 0.5)):
        time.sleep(rng.uniform(*_DURATION_S))
    return True


def _failing_store(status):
    def strike(world, _pid, rng):
        with world.store.answering(status):
            time.sleep(rng.uniform(*_DURATION_S))
        return True

    return strike


def _cut_bodies(world, _pid, rng):
    wanted = rng.randint(1, 5)
    world.store.cut(wanted)
    time.sleep(rng.uniform(*_DURATION_S))
    left, world.store.cuts_left = world.store.cuts_left, 0
    return left < wanted


def _fill_disk(world, _pid, rng):
    filler = world.disk / "filler"
    try:
        with suppress(OSError), filler.open("wb") as file:
            while True:
                os.write(file.fileno(), bytes(1 << 20))
        time.sleep(rng.uniform(*_DURATION_S))
    finally:
        filler.unlink()
        world.restart()  # as its operator does: some of its databases may write nothing since
    return True


def _cut_database(world, _pid, rng):
    with world.database.shut():
        time.sleep(rng.uniform(0, 2))
    return True


def _forward_leases(world, _pid, _rng):
    with suppress(psycopg.Error), world.connection() as connection:
        return connection.execute(_FORWARD_LEASES).rowcount > 0
    return False


def _away(gate):
    """Return what shuts a service's gate for longer than an answer's row is waited for."""

    def strike(world, _pid, rng):
        with getattr(world, gate).shut():
            time.sleep(rng.uniform(*_AWAY_S))
        return True

    return strike


def _cut_clients(world, _pid, _rng):
    live = _live_cameras(world)
    for camera in live:
        camera.gate.drop()
    return bool(live)


def _cut_network(world, _pid, rng):
    live = _live_cameras(world)
    if live:
        with rng.choice(live).gate.shut():
            time.sleep(rng.uniform(*_DURATION_S))
    return bool(live)


def _vanish(world, _pid, rng):
    live = _live_cameras(world)
    if live:
        rng.choice(live).vanish()
    return bool(live)


def _live_cameras(world):
    return [camera for camera in world.cameras if camera.is_live]


_KILLS = [
    Fault("flow killed", _kill_flow, needs="run"),
    Fault("extraction child killed", _kill_decoder),
    Fault("Prefect server killed", _kill_service(ServiceName.PREFECT), needs="run"),
    Fault("Postgres killed", _kill_service(ServiceName.POSTGRES)),
    Fault("S3 server killed", _kill_service(ServiceName.S3)),
]
FAULTS = (
    *_KILLS,
    Fault("engine killed", _kill_engine, needs="engine"),
    Fault("worker and its children killed", _kill_worker, needs="worker"),
    Fault("several killed at once", _kill_several, needs="run"),
    Fault("S3 slow", _slow_store),
    Fault("S3 answers 500", _failing_store(500)),
    Fault("S3 answers 503", _failing_store(503)),
    Fault("S3 bodies cut in half", _cut_bodies, needs="run"),  # sessions read nothing there
    Fault("disk under the cache full", _fill_disk, needs="disk"),
    Fault("database connections cut", _cut_database),
    Fault("clock moved forward on leases", _forward_leases, needs="run"),
    Fault("frame files swapped", swap_frame_files, needs="cache"),
    Fault("frame files forged", forge_frame_files, needs="cache"),
    Fault("frame files of other versions", age_frame_files, needs="cache"),
    Fault("frame files truncated", truncate_frame_files, needs="cache"),
    Fault("index files swapped", swap_index_files, needs="cache"),
    Fault("index files forged", forge_index_files, needs="cache"),
    Fault("index files truncated", truncate_index_files, needs="cache"),
    Fault("plan files forged", forge_plan_files, needs="run"),
    Fault("plan files swapped", swap_plan_shards, needs="run"),
    Fault("plan files truncated", truncate_plan_files, needs="run"),
    Fault("service killed", lambda world, _pid, _rng: world.service.kill(), needs="sessions"),
    Fault("service ended in order", lambda world, _pid, _rng: world.service.end(), needs="sessions"),
    Fault("Postgres away", _away("database"), needs="sessions"),
    Fault("S3 away", _away("store"), needs="sessions"),
    Fault("clients' connections cut", _cut_clients, needs="sessions"),
    Fault("a client's network away", _cut_network, needs="sessions"),
    Fault("a client vanished", _vanish, needs="sessions"),
)
