"""The real engine: what vLLM answers and how its process ends."""

import json
import os
import random
import resource
import shutil
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest

from reelabel.waiting import AbandonedError, working_until
from reelabel_engine.errors import ModelError
from reelabel_engine.protocol import Batch, EngineConfig
from tasks.domain import Answer
from tasks.model.engine.process import EngineProcess
from tasks.model.engine.recovery import RecoveringEngine
from tasks.model.identity import TINY_MODEL
from tasks.model.prompts.prompt import answer_permuted, rotate_choices
from tests.model.engine.test_process import has_ended
from tests.model.factories import batch_about, frame_file, question
from tests.other_user import LOOPBACK, listening_ports
from tests.wait import until

# One worker: the tests share an engine.
pytestmark = [pytest.mark.system, pytest.mark.xdist_group("engine")]


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    log_path = tmp_path_factory.mktemp("engine") / "engine.log"
    config = EngineConfig(model=str(TINY_MODEL), dtype="float32")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("GLOO_SOCKET_IFNAME", socket.if_nameindex()[-1][1])  # to listen for others, if there are any
        with EngineProcess(config, log_path=log_path, start_timeout_s=240) as engine:
            yield engine


def test_nothing_of_an_engine_listens_beyond_loopback(engine):
    engine.wait_ready()

    assert {address for _, address in listening_ports(engine.pid)} <= {LOOPBACK}


def test_the_engines_description_of_itself_is_plain_data(engine):
    assert {type(value) for value in engine.wait_ready().versions.values()} == {str}


def test_probabilities_are_over_the_choices_alone(engine):
    [answer] = engine.answer(batch_about(question()))

    assert len(answer.probabilities) == 4
    assert sum(answer.probabilities) == pytest.approx(1)
    assert answer.probabilities[answer.choice_index] == max(answer.probabilities)
    assert answer.prompt_tokens > 8 * 4


def test_questions_on_one_video_share_its_prefill(engine):
    questions = (question(), question("What shape is it?", ("square", "circle", "triangle", "cross")))

    first, second = engine.answer(Batch(frame_files={"v": frame_file(2)}, questions=questions))

    assert first.cached_tokens == 0
    assert second.cached_tokens >= 32


def test_the_tokens_of_a_video_are_computed_only_for_its_first_question(engine):
    questions = tuple(question(f"{colour} or not?") for colour in ("Red", "Green", "Blue", "Yellow"))

    first, *others = engine.answer(Batch(frame_files={"v": frame_file(3, repeats=8)}, questions=questions))

    video_tokens = 8 * 8 // 2 * 4  # 64 frames of 56 x 56, two of them to four tokens
    assert first.cached_tokens == 0
    assert all(answer.cached_tokens >= video_tokens for answer in others)


def test_the_choice_orders_of_one_question_share_its_prefill(engine):
    first, *others = (question(choices=order) for order in rotate_choices(("red", "green", "blue", "yellow"), 4))
    batch = Batch(frame_files={"v": frame_file(5)}, questions=(replace(first, permutations=tuple(others)),))

    [answer] = answer_permuted(engine.answer, batch)

    alone = engine.answer(batch.only((first, *others)))
    assert answer.order.permutations == 4
    assert answer.prompt_tokens == sum(one.prompt_tokens for one in alone)
    assert answer.cached_tokens >= 3 * 32  # all but the first order found the video in the cache
    assert sum(answer.probabilities) == pytest.approx(1)


def test_an_unexpected_error_of_the_renderer_fails_its_question_alone_and_costs_no_restart(engine):
    odd = [replace(question(), text=7), replace(question(), system_prompt=7)]
    pid = engine.pid

    first, *failures, last = engine.answer(batch_about(question(), *odd, question("What shape is it?")))

    assert [(each.code, each.stage) for each in failures] == [("internal", "inference")] * 2
    assert "failed with an unexpected " in failures[0].message
    assert isinstance(first, Answer)
    assert isinstance(last, Answer)
    assert engine.pid == pid


def test_a_batch_that_nobody_waits_for_is_given_up(engine):
    pid, [expected] = engine.pid, engine.answer(batch_about(question(), seed=70))
    has_left, busy_ms = threading.Event(), engine.times.busy_ms

    def ask(number):
        with working_until(has_left.is_set):
            return engine.answer(batch_about(*(question(f"{number} {each}?") for each in range(64)), seed=number))

    with ThreadPoolExecutor(4) as threads:
        futures = [threads.submit(ask, number) for number in range(71, 75)]
        until(lambda: futures[0].done() or engine.times.busy_ms > busy_ms)
        has_left.set()
        errors = [each.exception(timeout=60) for each in futures]

    assert any(isinstance(error, AbandonedError) for error in errors)
    [again] = engine.answer(batch_about(question(), seed=70))
    assert again.probabilities == pytest.approx(expected.probabilities, abs=1e-4)
    assert engine.pid == pid


def test_answers_do_not_depend_on_what_else_is_in_the_batch(engine):
    files = {str(seed): frame_file(seed) for seed in range(10, 22)}
    questions = tuple(question(video_id=video_id) for video_id in files)

    together = engine.answer(Batch(frame_files=files, questions=questions))
    alone = [
        engine.answer(Batch(frame_files={one.video_id: files[one.video_id]}, questions=(one,)))[0] for one in questions
    ]

    assert [answer.choice_index for answer in together] == [answer.choice_index for answer in alone]
    for one, other in zip(together, alone, strict=True):
        assert one.probabilities == pytest.approx(other.probabilities, abs=1e-4)


def test_answers_do_not_depend_on_order_batches_or_renderers(engine, tmp_path):
    files = {str(seed): frame_file(seed) for seed in range(30, 42)}
    questions = [question(f"Which colour is the shape, try {n}?", video_id=one) for n in range(2) for one in files]
    expected = dict(zip(questions, engine.answer(Batch(frame_files=files, questions=tuple(questions))), strict=True))
    random.Random(0).shuffle(questions)
    batches = [Batch(frame_files=files, questions=tuple(questions[n : n + 5])) for n in range(0, len(questions), 5)]

    config = EngineConfig(model=str(TINY_MODEL), dtype="float32", render_processes=2, engine_args={"max_num_seqs": 3})
    with (
        EngineProcess(config, log_path=tmp_path / "engine.log", start_timeout_s=240) as other,
        ThreadPoolExecutor(4) as threads,
    ):
        answers = list(chain.from_iterable(threads.map(other.answer, batches)))

    assert [answer.choice_index for answer in answers] == [expected[one].choice_index for one in questions]
    for answer, one in zip(answers, questions, strict=True):
        assert answer.probabilities == pytest.approx(expected[one].probabilities, abs=1e-4)


def test_a_video_is_identified_by_its_frames_and_sampling_never_by_its_name(engine):
    def ask(data):
        [answer] = engine.answer(Batch(frame_files={"v": data}, questions=(question("Known by what?"),)))
        return answer

    first, again = ask(frame_file(50)), ask(frame_file(50))
    others = ask(frame_file(51)), ask(frame_file(50, repeats=1)), ask(frame_file(50, every_s=1.0))

    assert first.cached_tokens == 0
    assert again.cached_tokens >= 32
    assert again.probabilities == pytest.approx(first.probabilities, abs=1e-6)
    assert [answer.cached_tokens for answer in others] == [0, 0, 0]


def test_a_frame_file_that_cannot_be_read_fails_its_own_questions(engine):
    damaged = bytearray(frame_file(1))
    damaged[len(damaged) // 2] ^= 1
    questions = (question(), question(video_id="w"))

    refusal, answer = engine.answer(Batch(frame_files={"v": bytes(damaged), "w": frame_file(2)}, questions=questions))

    assert (refusal.code, refusal.stage) == ("frame_file_damaged", "cache")
    assert isinstance(answer, Answer)


def test_a_refused_question_does_not_stop_the_others(engine):
    questions = (
        question("long " * 4000),
        question(choices=("yes", "yes, always"), scoring="text"),
        question(),
    )

    long, ambiguous, good = engine.answer(Batch(frame_files={"v": frame_file(3)}, questions=questions))

    assert (long.code, ambiguous.code) == ("prompt_too_long", "choices_ambiguous")
    assert isinstance(good, Answer)


def test_an_engine_that_runs_out_of_memory_is_restarted(tmp_path):
    files = {str(seed): frame_file(seed) for seed in range(24)}
    batch = Batch(frame_files=files, questions=tuple(question(video_id=video_id) for video_id in files))
    process = EngineProcess(EngineConfig(model=str(TINY_MODEL)), log_path=tmp_path / "engine.log", start_timeout_s=240)
    with RecoveringEngine(process) as engine:
        engine.wait_ready()
        pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[0])
        resource.prlimit(process.pid, resource.RLIMIT_AS, (pages * resource.getpagesize(),) * 2)

        answers = engine.answer(batch)

        assert process.starts == 2
    assert all(isinstance(answer, Answer) for answer in answers)


def test_an_engine_ends_with_its_parent(tmp_path):
    script = (
        "import time; from pathlib import Path; from tasks.model.engine.process import EngineProcess;"
        "from reelabel_engine.protocol import EngineConfig;"
        f"e = EngineProcess(EngineConfig(model={str(TINY_MODEL)!r}), log_path=Path({str(tmp_path / 'log')!r}),"
        " start_timeout_s=99); e.start(); print(e.pid, flush=True); time.sleep(600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    with parent:
        child = os.pidfd_open(int(parent.stdout.readline()))

        parent.kill()

        assert has_ended(child, within_s=90)


@pytest.fixture(scope="module")
def pruning(tmp_path_factory):
    """An engine that leaves out half of a video's tokens."""
    log_path = tmp_path_factory.mktemp("pruning") / "engine.log"
    config = EngineConfig(model=str(TINY_MODEL), dtype="float32", video_pruning_rate=0.5)
    with EngineProcess(config, log_path=log_path, start_timeout_s=240) as engine:
        yield engine


def test_pruning_halves_the_tokens_of_a_video_and_keeps_its_answer(engine, pruning):
    [whole], [pruned] = (each.answer(batch_about(question(), seed=3)) for each in (engine, pruning))

    assert pruned.prompt_tokens == whole.prompt_tokens - 8 * 4 // 2  # 16 frames of 56 x 56, two of them to four tokens
    assert pruned.choice_index == whole.choice_index
    assert pruned.probabilities != whole.probabilities


def test_answers_about_pruned_videos_do_not_depend_on_earlier_questions(pruning):
    def ask(*questions):
        return pruning.answer(Batch(frame_files={"v": frame_file(3)}, questions=questions))

    shape = question("What shape is it?", ("square", "circle", "triangle", "cross"))

    first, second = ask(question(), shape)
    again, alone = ask(question()), ask(shape)

    assert [answer.probabilities for answer in (first, second)] == [
        pytest.approx(answer.probabilities, abs=1e-6) for answer in (*again, *alone)
    ]


def test_no_batch_of_pruned_videos_is_cut_where_vllm_cannot_go_on(tmp_path):
    # Cut after any number of tokens, some step would begin at the first token of a video.
    config = EngineConfig(
        model=str(TINY_MODEL), dtype="float32", video_pruning_rate=0.5, engine_args={"max_num_batched_tokens": 128}
    )
    files = {str(seed): frame_file(seed) for seed in range(24)}
    questions = tuple(question(f"{'Look! ' * at}Which colour?", video_id=name) for at, name in enumerate(files))

    with EngineProcess(config, log_path=tmp_path / "engine.log", start_timeout_s=240) as engine:
        replies = engine.answer(Batch(frame_files=files, questions=questions))

    assert sum(isinstance(reply, Answer) for reply in replies) > 8
    assert {reply.code for reply in replies if not isinstance(reply, Answer)} <= {"prompt_too_long"}


def test_a_model_that_cannot_prune_is_refused_by_name(tmp_path):
    folder = shutil.copytree(TINY_MODEL, tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    config |= {"architectures": ["Qwen2VLForConditionalGeneration"], "model_type": "qwen2_vl"}
    (folder / "config.json").write_text(json.dumps(config))
    config = EngineConfig(model=str(folder), dtype="float32", video_pruning_rate=0.5)

    with (
        EngineProcess(config, log_path=tmp_path / "engine.log", start_timeout_s=240) as engine,
        pytest.raises(ModelError, match="Qwen2VLForConditionalGeneration cannot prune videos"),
    ):
        engine.wait_ready()
