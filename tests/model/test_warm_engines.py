"""An engine that a run leaves to the next one."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from reelabel_engine.errors import ModelError
from reelabel_engine.keep import socket_in
from reelabel_engine.protocol import AskBatch, EngineConfig, EngineLoaded, encode
from tasks.model.engine.process import EngineProcess
from tasks.model.running_process import RunningProcess
from tasks.model.warm_engines import AdoptedProcess, KeptEngine, WarmEngines
from tests import stub_engine
from tests.model.engine.bad_engine import INFO
from tests.model.factories import batch_about, frame_file, question
from tests.other_user import STRANGER
from tests.stub_engine import Trigger, answer_to
from tests.wait import until

ANSWERED = [answer_to(question(), frame_file(1))]


@pytest.fixture
def warm(tmp_path):
    warm = WarmEngines.of(tmp_path / ("a long way home, " * 10), keep_s=60)
    yield warm
    warm.end()


@pytest.fixture
def make_engine(tmp_path, warm):
    def make_engine(*, warm=warm, fingerprint="weights", **config):
        return EngineProcess(
            EngineConfig(**{"model": str(tmp_path / "model")} | config),
            log_path=tmp_path / "engine.log",
            start_timeout_s=60,
            command=stub_engine.COMMAND,
            warm=warm,
            fingerprint=fingerprint,
        )

    return make_engine


@pytest.fixture
def run(make_engine, warm):
    """Ask a question as a run does, with an engine of its own; return the engine's process id."""

    def run(text="Which colour?", *, warm=warm, fingerprint="weights", **config):
        with make_engine(warm=warm, fingerprint=fingerprint, **config) as engine:
            engine.wait_ready()
            pid = engine.pid
            assert engine.answer(batch_about(question(text))) == [answer_to(question(text), frame_file(1))]
        return pid

    return run


def runs(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return not state.startswith("Z")


def test_the_next_run_of_the_same_model_finds_it_loaded(run, warm):
    first = run()
    [kept] = warm.show()
    assert kept["pid"] == first

    assert run("Another question?") == first
    assert run("And one more?") == first
    assert warm.end() == 1
    until(lambda: not runs(first))


def test_its_temporary_files_go_with_it(run, warm):
    run()
    [kept] = warm.show()
    assert os.path.isdir(kept["temporary"])  # noqa: PTH112

    warm.end()

    until(lambda: not os.path.exists(kept["temporary"]))  # noqa: PTH110


@pytest.mark.parametrize(
    "other",
    [{"dtype": "float32"}, {"fingerprint": "other weights"}, {"engine_args": {"seed": 1}}],
    ids=["settings", "weights", "arguments"],
)
def test_it_ends_before_another_model_is_loaded(run, warm, other):
    first = run()

    second = run(**other)

    assert second != first
    until(lambda: not runs(first))
    assert [kept["pid"] for kept in warm.show()] == [second]


def test_it_ends_after_a_while(run, warm):
    pid = run(warm=WarmEngines(folder=warm.folder, keep_s=0.5))

    until(lambda: not runs(pid))
    until(lambda: not [*warm.folder.iterdir()])


def test_a_run_that_keeps_none_takes_it_and_ends_it(run, warm):
    first = run()

    assert run(warm=WarmEngines(folder=warm.folder)) == first
    until(lambda: not runs(first))
    assert warm.show() == []


def test_one_that_is_killed_while_it_is_kept_is_not_taken_and_leaves_no_process(run):
    first = run()
    members = subprocess.run(["pgrep", "-g", str(first)], capture_output=True, text=True, check=True).stdout.split()
    os.kill(first, signal.SIGKILL)

    assert run() != first
    assert len(members) > 1
    until(lambda: not any(runs(int(member)) for member in members))


def test_one_that_works_or_is_lost_is_ended(make_engine, warm):
    engine = make_engine()
    engine.start()
    engine.wait_ready()
    running, pid = engine._running, engine.pid
    batch = batch_about(question(f"Will it {Trigger.HANG}?"))
    running.send(lambda number: AskBatch(number=number, batch=batch))
    engine.close()

    until(lambda: not runs(pid))
    assert warm.show() == []


def test_answers_to_an_abandoned_request_reach_nobody_else(make_engine, run):
    engine = make_engine()
    engine.start()
    engine.wait_ready()
    pid, batch = engine.pid, batch_about(*(question(f"Number {number}, {Trigger.ENDLESS}?") for number in range(5)))
    running = engine.ensure_running()
    request = running.send(lambda number: AskBatch(number=number, batch=batch), count=5)
    time.sleep(0.5)  # so that the engine works on them
    running.cancel(request)
    engine.close()

    assert run("Another question?") == pid


def test_one_is_kept_whatever_the_length_of_the_temporary_folder(run, tmp_path, monkeypatch):
    long = tmp_path / ("temporary files of a cluster" * 4)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    first = run()

    assert run() == first


def test_a_model_that_cannot_be_loaded_is_loaded_once(tmp_path, make_engine):
    (tmp_path / "model").write_text("No such weights.")
    engine = make_engine()
    with engine:
        engine.start()
        until(lambda: engine._running.lost)
        with pytest.raises(ModelError, match="No such weights"):
            engine.wait_ready()

    assert engine.starts == 1


def test_a_run_that_is_killed_takes_a_kept_engine_with_it(run, warm, tmp_path):
    first = run()
    script = """
import sys, time
from pathlib import Path
from reelabel_engine.protocol import EngineConfig
from tasks.model.warm_engines import WarmEngines
from tasks.model.engine.process import EngineProcess

model, log, folder, *command = sys.argv[1:]
warm = WarmEngines(folder=Path(folder), keep_s=60)
options = {"start_timeout_s": 60, "command": command, "warm": warm, "fingerprint": "weights"}
engine = EngineProcess(EngineConfig(model=model), log_path=Path(log), **options)
engine.start()
engine.wait_ready()
print(engine.pid, flush=True)
time.sleep(60)
"""
    paths = map(str, (tmp_path / "model", tmp_path / "engine.log", warm.folder))
    command = [sys.executable, "-c", script, *paths, *stub_engine.COMMAND]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert int(process.stdout.readline()) == first
        process.kill()

    until(lambda: not runs(first))


def test_engines_beside_each_other_are_kept_and_taken_one_by_one(run, warm):
    first = {devices: run(devices=(devices,)) for devices in ("0", "1")}

    assert {kept["pid"] for kept in warm.show()} == set(first.values())
    assert {devices: run(devices=(devices,)) for devices in ("0", "1")} == first


def test_only_engines_that_wait_are_shown(warm):
    facts = {"temporary": "gone", "model": "m"}
    for name, pid, until_s in (("waits", os.getpid(), 60), ("is over", os.getpid(), -60), ("is dead", 2**22 + 1, 60)):
        of_one = facts | {"name": name, "pid": pid, "until": time.time() + until_s}
        warm.new_path("key", "all").write_text(json.dumps(of_one))
    warm.new_path("key", "all").write_text("{")

    assert [kept["name"] for kept in warm.show()] == ["waits"]
    assert warm.end() == 0
    assert warm.show() == []


def test_one_that_dies_as_it_is_taken_over_is_lost_like_any_other():
    for _ in range(100):  # as it depends on which thread is first
        ours, its = Pipe()
        its.close()
        kept = KeptEngine(ours, INFO, AdoptedProcess(os.getpid()), Path("its temporary files"))

        running = RunningProcess.adopt(kept, folders=[], note_times=lambda _: None, silence_s=1.0)

        assert running.info.result() == INFO
        until(lambda running=running: running.lost)
        running._close()


def test_a_run_ends_well_where_no_engine_can_be_kept(run, warm):
    warm.folder.parent.mkdir(parents=True, exist_ok=True)
    warm.folder.write_text("in the way")

    pid = run(warm=WarmEngines(folder=warm.folder / "below", keep_s=60))

    until(lambda: not runs(pid))
    warm.folder.unlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_an_engine_of_another_user_in_the_folder_of_one_that_was_killed_is_not_asked(warm, tmp_path):
    """It would be shown every frame, and its answers would be taken."""
    facts = {"pid": os.getpid(), "temporary": str(tmp_path), "model": "m", "until": time.time() + 60}
    warm.new_path("key", "all").write_text(json.dumps(facts))
    with socket.socket(socket.AF_UNIX) as listening:
        with socket_in(tmp_path) as address:
            listening.bind(address)
        impostor = as_listening_user(listening, encode(EngineLoaded(info=INFO)))

    try:
        assert warm.take("key", "all") is None
        assert not [*warm.folder.iterdir()]
    finally:
        os.kill(impostor, signal.SIGKILL)
        os.waitpid(impostor, 0)


def as_listening_user(listening, message):
    """Greet whoever connects, from a process of another user; return its id once it listens."""
    pid = os.fork()
    if not pid:
        try:
            os.setgid(STRANGER)
            os.setuid(STRANGER)
            listening.listen()
            while True:
                Connection(listening.accept()[0].detach()).send_bytes(message)
        finally:
            os._exit(1)
    until(lambda: accepts(listening))
    return pid


def accepts(listening):
    return listening.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
