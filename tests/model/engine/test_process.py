"""The process of an engine: its protocol and how it ends; `test_engine` has the real engine in it."""

import json
import os
import random
import resource
import select
import signal
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest

from infra.errors import EngineClosedError, EngineLostError
from infra.logs import IS_OUTAGE
from reelabel.errors import DiskFullError
from reelabel.waiting import AbandonedError, working_until
from reelabel_engine.errors import ModelError
from reelabel_engine.protocol import AskBatch, Batch, Cancel, EngineConfig, encode
from tasks.model import running_process
from tasks.model.engine.process import EngineProcess
from tests import stub_engine
from tests.model.factories import batch_about, frame_file, question
from tests.open_descriptors import open_descriptors
from tests.stub_engine import LEFT_BY_ENGINE, Trigger, answer_to
from tests.wait import until


def test_every_answer_reaches_its_question_whatever_the_order_batches_or_renderers(make_engine):
    files = {str(seed): frame_file(seed) for seed in range(6)}
    questions = [question(f"Which colour is the shape, try {n}?", video_id=one) for n in range(20) for one in files]
    random.Random(0).shuffle(questions)
    batches = [Batch(frame_files=files, questions=tuple(questions[n : n + 5])) for n in range(0, len(questions), 5)]
    engine = make_engine(render_processes=2)

    with ThreadPoolExecutor(4) as threads:
        answers = list(chain.from_iterable(threads.map(engine.answer, batches)))

    assert answers == [answer_to(one, files[one.video_id]) for one in questions]


@pytest.mark.parametrize(
    ("word", "code"),
    [
        pytest.param(Trigger.TOO_LONG, "prompt_too_long", id="by its renderer"),
        pytest.param(Trigger.REFUSED, "inference_failed", id="by the engine"),
    ],
)
def test_a_refused_question_does_not_stop_the_others(make_engine, word, code):
    before, refused, after = question("Before?"), question(f"Is it {word}?"), question("After?")

    first, refusal, last = make_engine().answer(batch_about(before, refused, after))

    assert (first, last) == (answer_to(before, frame_file(1)), answer_to(after, frame_file(1)))
    assert refusal.code == code


@pytest.mark.parametrize("text", [7, "\ud800"], ids=["a number", "half a character"])
def test_a_question_that_cannot_be_sent_does_not_stop_the_others(make_engine, text):
    before, after = question("Before?"), question("After?")

    first, refusal, last = make_engine().answer(batch_about(before, replace(question(), text=text), after))

    assert (first, last) == (answer_to(before, frame_file(1)), answer_to(after, frame_file(1)))
    assert (refusal.code, refusal.stage) == ("internal", "inference")


def test_an_engine_that_cannot_start_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "logs").write_text("No folder.")
    engine = EngineProcess(
        EngineConfig(model="a"),
        log_path=tmp_path / "logs" / "engine.log",
        start_timeout_s=60,
        command=stub_engine.COMMAND,
    )
    before = len(open_descriptors())

    with pytest.raises(OSError, match="logs"):
        engine.start()

    assert len(open_descriptors()) <= before
    assert [each.name for each in tmp_path.iterdir()] == ["logs"]


@pytest.mark.parametrize("end", ["closed", "killed"])
def test_temporary_files_of_an_engine_are_removed_with_it(make_engine, tmp_path, monkeypatch, end):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    engine = make_engine()
    engine.wait_ready()
    assert list(tmp_path.rglob(LEFT_BY_ENGINE))

    if end == "killed":
        os.kill(engine.pid, signal.SIGKILL)
        with pytest.raises(EngineLostError):
            engine.answer(batch_about(question("Which?")))
    else:
        engine.close()

    assert not list(tmp_path.rglob(LEFT_BY_ENGINE))
    assert not list(tmp_path.glob("reelabel-*"))


def test_a_model_that_cannot_be_loaded_is_named(make_engine, tmp_path):
    (tmp_path / "model").write_text("It has no weights.")
    engine = make_engine()

    with pytest.raises(ModelError, match=r"Cannot load model .*/model: It has no weights; see the log .*engine\.log"):
        engine.wait_ready()
    assert engine.pid is None


def test_an_adapter_that_cannot_be_loaded_is_named_in_place_of_its_model(make_engine, tmp_path):
    (tmp_path / "model").write_text("It has no rank.")
    engine = make_engine(adapter="/checkpoints/mine")

    with pytest.raises(ModelError, match=r"Cannot load model /checkpoints/mine: It has no rank"):
        engine.wait_ready()


def test_a_full_disk_is_not_mistaken_for_a_faulty_model(make_engine, tmp_path):
    (tmp_path / "model").symlink_to("/dev/full")
    engine = make_engine()

    with pytest.raises(DiskFullError, match=r"^The disk of .* is full; free space, then run the same command"):
        engine.wait_ready()
    assert engine.pid is None
    (tmp_path / "model").unlink()
    engine.start()
    assert engine.wait_ready().device == "cpu"


def test_an_engine_reports_a_full_disk_and_answers_once_there_is_space(make_engine):
    engine = make_engine()

    with pytest.raises(DiskFullError, match="The disk of"):
        engine.answer(batch_about(question(f"Is it {Trigger.DISK_FULL}?")))
    assert engine.pid is None
    engine.start()
    assert engine.answer(batch_about(question("Before?"))) == [answer_to(question("Before?"), frame_file(1))]


def test_a_model_that_loads_too_slowly_is_given_up(make_engine, tmp_path):
    os.mkfifo(tmp_path / "model")
    engine = make_engine(start_timeout_s=0.1)

    with pytest.raises(ModelError, match=r"did not load within 0\.1 s; check the log"):
        engine.wait_ready()
    assert engine.pid is None


def test_closing_an_engine_while_it_loads_is_not_a_fault_of_its_model(make_engine, tmp_path):
    os.mkfifo(tmp_path / "model")
    engine = make_engine()
    with ThreadPoolExecutor(1) as threads, (tmp_path / "model").open("wb"):  # opens once the engine is loading
        waiting = threads.submit(engine.wait_ready)
        engine.close()

        with pytest.raises(EngineClosedError):
            waiting.result()
    with pytest.raises(EngineClosedError):
        engine.answer(batch_about(question()))


class ClosedWhenItAnswers(EngineProcess):
    """An engine that is closed just when its first answer has come and was not yet handed on."""

    closing = None

    def _note_times(self, times):
        super()._note_times(times)
        running = self._running
        if running is not None and running.info.done() and self.closing is None:
            failed = threading.Event()
            fail = running._fail
            running._fail = lambda *reason: (fail(*reason), failed.set())
            self.closing = threading.Thread(target=self.close)
            self.closing.start()
            failed.wait()


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_answers_that_arrive_during_closing_are_discarded(make_engine):
    engine = make_engine(ClosedWhenItAnswers)

    with pytest.raises(EngineClosedError):
        engine.answer(batch_about(question()))

    engine.closing.join()


def test_a_killed_engine_is_noticed_and_can_be_restarted(make_engine, caplog):
    engine = make_engine()
    engine.wait_ready()
    os.kill(engine.pid, signal.SIGKILL)

    with pytest.raises(EngineLostError, match="its process died"):
        engine.answer(batch_about(question()))

    assert [each.levelname for each in caplog.records if "was lost: its process died; see the log" in each.message] == [
        "WARNING"
    ]
    assert caplog.messages[-1].endswith("engine.log (1 so far).")
    assert hasattr(caplog.records[-1], IS_OUTAGE), "the terminal of a run shows it"
    engine.start()
    assert engine.answer(batch_about(question())) == [answer_to(question(), frame_file(1))]
    assert engine.times.restart_ms > 0


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        pytest.param(Trigger.POISON, "its process died", id="its process"),
        pytest.param(Trigger.RENDERER_POISON, "BrokenProcessPool", id="a renderer"),
    ],
)
def test_an_engine_that_dies_on_a_question_reports_how_and_leaves_nothing_running(make_engine, word, reason):
    engine = make_engine()
    engine.wait_ready()
    group = engine.pid

    with pytest.raises(EngineLostError, match=reason):
        engine.answer(batch_about(question(f"Is it {word}?")))

    assert engine.pid is None
    assert has_group_ended(group, within_s=30)


def test_an_engine_that_runs_out_of_memory_reports_it(make_engine):
    engine = make_engine()
    engine.wait_ready()
    pages = int(Path(f"/proc/{engine.pid}/statm").read_text().split()[0])
    resource.prlimit(engine.pid, resource.RLIMIT_AS, (pages * resource.getpagesize() + 64 * 1024**2,) * 2)

    with pytest.raises(EngineLostError, match="MemoryError"):
        engine.answer(batch_about(question(f"Is it {Trigger.HUNGRY}?")))


def test_a_hanging_engine_is_stopped(make_engine):
    engine = make_engine(answer_timeout_s=0.3)
    engine.wait_ready()

    with pytest.raises(EngineLostError, match=r"no answer within 0\.3 s"):
        engine.answer(batch_about(question(f"Will it {Trigger.HANG}?")))

    assert engine.pid is None


def test_a_stopped_process_is_killed(make_engine, monkeypatch):
    monkeypatch.setattr(running_process, "_END_TIMEOUT_S", 0.3)  # a stopped process does not even take a SIGTERM
    engine = make_engine(answer_timeout_s=0.3)
    engine.wait_ready()
    group = engine.pid
    os.kill(group, signal.SIGSTOP)

    with pytest.raises(EngineLostError, match=r"no answer within 0\.3 s"):
        engine.answer(batch_about(question()))

    assert has_group_ended(group, within_s=30)


def test_an_engine_that_has_ended_is_not_signalled_again(make_engine, monkeypatch):
    """Its id may be that of another process by now."""
    engine, signalled = make_engine(), []
    engine.wait_ready()
    running = engine.ensure_running()
    engine.close()
    monkeypatch.setattr(os, "killpg", lambda *signal_sent: signalled.append(signal_sent))

    running.end("as one who notices its loss late")

    assert signalled == []


def test_an_engine_ends_with_its_parent(tmp_path):
    script = f"""
import sys
from pathlib import Path
from tasks.model.engine.process import EngineProcess
from reelabel_engine.protocol import EngineConfig
config = EngineConfig(model={str(tmp_path / "model")!r})
engine = EngineProcess(config, log_path=Path({str(tmp_path / "log")!r}), start_timeout_s=60,
    command={stub_engine.COMMAND!r})
engine.start()
engine.wait_ready()
print(engine.pid, flush=True)
sys.stdin.read()
"""
    parent = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with parent:
        child = os.pidfd_open(int(parent.stdout.readline()))

        parent.kill()

        assert has_ended(child, within_s=30)


def test_what_an_engine_prints_is_json_where_asked_up_to_its_last_words(tmp_path):
    log = tmp_path / "engine.log"
    dies = (sys.executable, "-c", "print('Loading.'); raise SystemExit('No weights.')")
    options = {"log_path": log, "log_as_json": True, "start_timeout_s": 60, "command": dies}
    with pytest.raises(ModelError), EngineProcess(EngineConfig(model="any"), **options) as engine:
        engine.wait_ready()

    until(lambda: log.read_text().count("\n") >= 2)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert {(line["logger"], line["message"]) for line in lines} == {("engine", "Loading."), ("engine", "No weights.")}


def has_ended(pidfd, *, within_s):
    """Wait until a process ends; return whether it did, and close its descriptor."""
    with os.fdopen(pidfd) as file:
        return bool(select.select([file], [], [], within_s)[0])


def has_group_ended(group, *, within_s):
    """Wait until all processes of a group end; a killed one takes a moment. Tells whether they did."""
    members = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended meanwhile
            if int(stat.read_text().rpartition(")")[2].split()[2]) == group:
                members.append(os.pidfd_open(int(stat.parent.name)))
    ended = [has_ended(member, within_s=within_s) for member in members]
    return all(ended)


def test_a_batch_that_nobody_waits_for_is_given_up_and_others_are_answered(make_engine):
    engine, has_left = make_engine(), threading.Event()
    engine.wait_ready()
    pid = engine.pid

    def ask(batch):
        with working_until(has_left.is_set):
            return engine.answer(batch)

    with ThreadPoolExecutor(2) as threads:
        abandoned = threads.submit(ask, batch_about(question(f"Is it {Trigger.ENDLESS}?"), question()))
        waiting = threads.submit(engine.answer, batch_about(question("What shape is it?")))
        has_left.set()

        with pytest.raises(AbandonedError):
            abandoned.result(timeout=30)
        assert waiting.result(timeout=30) == [answer_to(question("What shape is it?"), frame_file(1))]
    assert engine.pid == pid


def test_a_batch_whose_replies_keep_arriving_is_cancelled_at_once_if_nobody_waits(make_engine, monkeypatch):
    engine, has_left, cancelled = make_engine(), threading.Event(), []

    def record_cancelled(message):
        if isinstance(message, Cancel):
            cancelled.append(message.number)
        return encode(message)

    monkeypatch.setattr(running_process, "encode", record_cancelled)
    engine.wait_ready()
    running = engine.ensure_running()
    batch = batch_about(question(f"Is it {Trigger.HANG}?"), question(), question("What shape is it?"))
    request = running.send(lambda number: AskBatch(number=number, batch=batch), count=3)
    replies = running.replies(request)

    with working_until(has_left.is_set):
        next(replies)
        until(lambda: not request.replies.empty())
        has_left.set()
        with pytest.raises(AbandonedError):
            next(replies)

    until(lambda: cancelled == [request.number])
