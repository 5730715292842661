"""An engine that dies is restarted, and only the question that kills it gets no answer."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from infra.errors import EngineClosedError
from reelabel.errors import DiskFullError
from reelabel_engine.protocol import Batch, Rejected
from tasks.domain import Answer
from tasks.model.engine.recovery import RecoveringEngine
from tests.model.factories import batch_about, frame_file, question
from tests.stub_engine import Trigger, answer_to

DEADLY = [pytest.param(word, id=word.name.lower()) for word in (Trigger.POISON, Trigger.RENDERER_POISON)]


@pytest.mark.parametrize("word", DEADLY)
def test_a_fatal_question_is_refused_and_the_others_are_answered(make_engine, word):
    engine = make_engine()

    answer, refusal = RecoveringEngine(engine).answer(batch_about(question(), question(f"Is it {word}?")))

    # At first, for each question alone, again for the one that kills it, and to prove that it is to blame.
    assert engine.starts == 4
    assert answer == answer_to(question(), frame_file(1))
    assert isinstance(refusal, Rejected)
    assert (refusal.code, refusal.stage) == ("inference_failed", "inference")


def test_questions_asked_beside_a_fatal_one_are_answered(make_engine):
    innocent = batch_about(*(question(f"Which colour is it, number {n}?") for n in range(40)))
    deadly = batch_about(question(f"Is it {Trigger.POISON}?"))
    engine = make_engine()
    recovery = RecoveringEngine(engine)
    engine.wait_ready()
    with ThreadPoolExecutor(4) as threads:
        futures = [threads.submit(recovery.answer, batch) for batch in (innocent, innocent, deadly, innocent)]
    first, second, refused, third = (each.result() for each in futures)

    expected = [answer_to(one, frame_file(1)) for one in innocent.questions]
    assert first == second == third == expected
    assert isinstance(refused[0], Rejected)


def test_an_engine_killed_between_two_batches_answers_the_second(make_engine):
    engine = make_engine()
    recovery = RecoveringEngine(engine)
    files = {str(seed): frame_file(seed) for seed in range(4)}
    batch = Batch(frame_files=files, questions=tuple(question(video_id=video_id) for video_id in files))
    recovery.answer(batch)
    engine._running.process.kill()

    answers = recovery.answer(batch)

    assert all(isinstance(answer, Answer) for answer in answers)
    assert engine.starts == 2


def test_no_question_is_blamed_for_a_full_disk(make_engine):
    engine = make_engine()
    recovery = RecoveringEngine(engine)
    batch = batch_about(question(), question(f"Is it {Trigger.DISK_FULL}?"))

    for _ in range(3):  # the task and its retries
        with pytest.raises(DiskFullError, match="The disk of"):
            recovery.answer(batch)
    assert recovery.answer(batch_about(question())) == [answer_to(question(), frame_file(1))]


def test_a_closed_engine_is_not_restarted(make_engine):
    engine = make_engine()
    engine.wait_ready()
    with ThreadPoolExecutor(1) as threads:
        future = threads.submit(RecoveringEngine(engine).answer, batch_about(question(f"Will it {Trigger.HANG}?")))
        engine.close()
        with pytest.raises(EngineClosedError):
            future.result()

    assert engine.starts == 1
