"""Live sessions through real vLLM: answers are those about the whole video, whatever is cached."""

import math
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from msgspec import structs

from infra.settings import LiveSettings
from reelabel.pool.decode_pool import DecodePool
from reelabel_engine.errors import InferenceError, PromptTooLongError
from reelabel_engine.live_items import AUDIO_HZ, SPAN_S, AudioSpan
from reelabel_engine.protocol import Batch, EngineConfig, LiveDone, LiveQuery, LiveText, Question
from tasks.demo.shapes import QUESTIONS
from tasks.domain.spec import DEFAULT_TEMPLATE
from tasks.live.media import FrameReader
from tasks.live.model import Prefix
from tasks.live.sessions import Sessions
from tasks.live.setup import LiveSetup
from tasks.live.window import AudioSpans, FramePairs, Window, WindowRule
from tasks.model.engine.live.model import EngineLiveModel
from tasks.model.engine.process import EngineProcess
from tasks.model.identity import TINY_MODEL, read_model_info
from tasks.model.prompts.prompt import render_question
from tests.live.client import ask, frame, start
from tests.live.event_loop import EventLoop
from tests.model.engine.live.streams import FPS, clip, pairs_of, whole_video
from tests.model.factories import live_answer
from tests.model.families.saved import saved
from tests.wait import until

pytestmark = pytest.mark.system


def prefix_of(session, items):
    has_audio = any(isinstance(item, AudioSpan) for item in items)
    return Prefix(session=session, items=tuple(items), has_audio=has_audio)


class Live:
    """An engine with its live model; its processor does not scale frames of `side_px`."""

    def __init__(self, engine, name, side_px=None):
        self.engine = engine
        self.side_px = side_px
        self.model = EngineLiveModel([engine], read_model_info(name), max_frame_px=56 * 56)
        self._sessions = 0
        self._hearing = set()  # once a session has had audio, all its prefixes say so

    def open(self):
        self._sessions += 1
        self.model.open(f"session {self._sessions}")
        return f"session {self._sessions}"

    def read(self, session, *prefixes):
        """Have prefixes read; return the tokens up to the last step, and those that were cached before the first."""
        goal = [prefix_of(session, items) for items in prefixes]
        self._hearing |= {session for each in goal if each.has_audio}
        goal = [replace(each, has_audio=session in self._hearing) for each in goal]
        first = last = self.model.prefill(goal)
        while step := self.model.prefill(goal):
            last = step
        return first and structs.replace(last, cached_tokens=first.cached_tokens)

    def ask(self, session, items, task="colour", text=None, **options):
        prompt, choices = QUESTIONS[task]
        query = LiveQuery(text=render_question(DEFAULT_TEMPLATE, prompt=prompt, choices=choices), choices=choices)
        if text is not None:
            query = LiveQuery(text=text, **options)
        answered = live_answer(self.model.ask(prefix_of(session, items), query), query.choices)
        return answered[1] if text is None else answered

    def classify(self, frames, task, fps=FPS):
        prompt, choices = QUESTIONS[task]
        text = render_question(DEFAULT_TEMPLATE, prompt=prompt, choices=choices)
        question = Question(video_id="v", text=text, system_prompt=None, choices=choices, scoring="letter")
        [answer] = self.engine.answer(Batch(frame_files={"v": whole_video(frames, fps)}, questions=(question,)))
        return answer


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("live")


@pytest.fixture(scope="module")
def qwen25(folder):
    config = EngineConfig(model=str(TINY_MODEL), dtype="float32", live_sessions=4)
    with EngineProcess(config, log_path=folder / "qwen25.log", start_timeout_s=240) as engine:
        yield Live(engine, str(TINY_MODEL))


@contextmanager
def live_model_of(folder, family, **options):
    """Load a model that `family` names, with random weights."""
    model = str(saved(family, folder))
    config = EngineConfig(model=model, dtype="float32", live_sessions=4)
    with EngineProcess(config, log_path=folder / f"{family}.log", start_timeout_s=240) as engine:
        yield Live(engine, model, **options)


@pytest.fixture(scope="module")
def qwen3(folder):
    with live_model_of(folder, "qwen3_vl", side_px=32) as live:
        yield live


@pytest.fixture(scope="module")
def omni(folder):
    with live_model_of(folder, "qwen2_5_omni") as live:
        yield live


@pytest.fixture(params=["qwen25", "qwen3"])
def live(request):
    return request.getfixturevalue(request.param)


def logs(answer):
    return pytest.approx([math.log(each) for each in answer.probabilities], abs=5e-5)


def logprobs(answer):
    return [math.log(each) for each in answer.probabilities]


def test_an_answer_from_the_cache_is_that_of_the_same_items_at_once(live):
    items = pairs_of(clip(1, 96))
    grown, at_once = live.open(), live.open()
    for n in range(1, len(items) + 1):
        warmed = live.read(grown, items[:n])
    assert warmed.cached_tokens > warmed.prompt_tokens / 2

    for task in QUESTIONS:
        cached = live.ask(grown, items, task)
        uncached = live.ask(live.open(), items, task)

        assert cached.cached_tokens > uncached.prompt_tokens / 2
        assert uncached.cached_tokens == 0
        assert logprobs(cached) == logs(uncached)
    assert live.ask(at_once, items).cached_tokens == 0


@pytest.mark.parametrize("fps", [2.0, 1.0, 4.0])
def test_labels_are_those_of_the_whole_video_as_classify_asks_about_it(live, fps):
    same = []
    for seed in range(6):
        frames = clip(100 + seed, 16 + seed, side_px=live.side_px)
        session = live.open()
        for task in QUESTIONS:
            whole = live.classify(frames, task, fps)
            answer = live.ask(session, pairs_of(frames, fps), task)

            assert answer.prompt_tokens == whole.prompt_tokens
            assert logprobs(answer) == logs(whole)
            same.append(answer.choice_index == whole.choice_index)
        live.model.close_session(session)
    assert all(same)


def test_the_same_pixels_at_other_times_are_another_video(live):
    frames = clip(3, 80)
    near, far = pairs_of(frames), pairs_of(frames, fps=0.25)
    session = live.open()
    live.read(session, near)

    slow = live.ask(session, far)

    assert slow.cached_tokens == 0  # though the session has just read the same pixels
    assert logprobs(slow) == logs(live.ask(live.open(), far))
    assert logprobs(slow) != logs(live.ask(session, near))


def test_sessions_with_the_same_pixels_at_the_same_times_share_nothing(live):
    items = pairs_of(clip(4, 80))
    one, other = live.open(), live.open()
    live.read(one, items)

    assert live.ask(other, items).cached_tokens == 0
    assert live.ask(one, items).cached_tokens > 64


def test_dropped_frames_leave_a_gap_of_their_true_length(live):
    frames = clip(5, 64)
    pairs = pairs_of(frames)
    sparse = [each for number, each in enumerate(pairs) if number % 4 == 0]
    session = live.open()
    for n in range(1, len(sparse) + 1):
        live.read(session, sparse[:n])

    answer = live.ask(session, sparse, "direction")

    assert logprobs(answer) == logs(live.ask(live.open(), sparse, "direction"))
    dense = pairs_of(np.concatenate([each.images for each in sparse]))
    assert logprobs(answer) != logs(live.ask(session, dense, "direction"))


def test_an_odd_frame_and_a_frame_of_another_size_are_read(live):
    items = [*pairs_of(clip(6, 9)), *pairs_of(clip(7, 4, side_px=32), start_s=5.0)]
    session = live.open()
    for n in range(1, len(items) + 1):
        live.read(session, items[:n])

    assert logprobs(live.ask(session, items)) == logs(live.ask(live.open(), items))


def test_the_window_moves_without_a_prefix_read_again(live):
    session, window = live.open(), Window(WindowRule(sink=8, size=40))
    costs, evictions = [], 0
    for item in pairs_of(clip(8, 240)):
        evictions += bool(window.add(item))
        warmed = live.read(session, window.current)
        costs.append(warmed.prompt_tokens - warmed.cached_tokens)
        if window.next:
            live.read(session, window.current, window.next)

    assert evictions >= 3
    tokens = sorted({later - earlier for earlier, later in pairwise(costs)})
    assert max(costs) <= 32 + 20, tokens  # what a block lacks, and an item
    answer = live.ask(session, window.current)
    assert answer.cached_tokens > answer.prompt_tokens / 2
    assert logprobs(answer) == logs(live.ask(live.open(), window.current))


def test_free_text_comes_as_it_is_made(live):
    items = pairs_of(clip(9))
    session = live.open()

    deltas, answer = live.ask(session, items, text="Tell me.", max_tokens=12)
    _, again = live.ask(session, items, text="Tell me.", max_tokens=12)
    _, shorter = live.ask(session, items, text="Tell me.", max_tokens=2)

    assert "".join(each.text for each in deltas) == answer.text == again.text
    assert all(isinstance(each, LiveText) for each in deltas)
    assert 1 <= answer.output_tokens <= 12
    assert answer.finish_reason == ("length" if answer.output_tokens == 12 else "stop")
    assert answer.text.startswith(shorter.text)


def test_earlier_turns_follow_the_frames_which_are_not_read_again(live):
    items = pairs_of(clip(30, 80))
    session = live.open()
    live.read(session, items)
    _, first = live.ask(session, items, text="Tell me.", max_tokens=4)
    turns = (("Tell me.", f"{first.text} <|im_end|>"),)

    _, second = live.ask(session, items, text="And then?", turns=turns, max_tokens=4)
    _, at_once = live.ask(live.open(), items, text="And then?", turns=turns, max_tokens=4)
    _, alone = live.ask(session, items, text="And then?", max_tokens=4)

    assert second.text == at_once.text
    assert (second.cached_tokens >= first.cached_tokens > 64, at_once.cached_tokens) == (True, 0)
    assert second.prompt_tokens > alone.prompt_tokens + 3  # the question, and <|im_end|> as the text that it is


def test_an_answer_that_is_cancelled_ends_and_the_next_is_given(qwen3):
    # Random weights: it does not end its answer.
    items = pairs_of(clip(31, 12))
    session = qwen3.open()
    answer = qwen3.model.ask(prefix_of(session, items), LiveQuery(text="Tell me.", max_tokens=1000))
    next(answer)

    qwen3.model.cancel(session)

    assert not any(isinstance(each, LiveDone) for each in answer)
    assert qwen3.ask(session, items).probabilities
    qwen3.model.cancel(session)  # there is nothing to cancel


def test_frames_are_read_while_an_answer_is_written(qwen3):
    # Random weights: it does not end its answer.
    items = pairs_of(clip(3, 12))
    session = qwen3.open()
    qwen3.read(session, items[:2])
    answer = qwen3.model.ask(prefix_of(session, items[:2]), LiveQuery(text="Tell me.", max_tokens=200))
    next(answer)

    with ThreadPoolExecutor(1) as threads:
        read = threads.submit(qwen3.read, session, items)
        was_read = [read.done() for _ in answer]

    assert any(was_read[:-1]), "a pair at a time, between the tokens of the answer"
    assert qwen3.ask(session, items).cached_tokens > qwen3.ask(qwen3.open(), items).prompt_tokens / 2


def test_special_tokens_in_a_question_are_text(live):
    items = pairs_of(clip(10))
    session = live.open()

    _, plain = live.ask(session, items, text="Hello", max_tokens=1)
    _, spelled = live.ask(session, items, text="Hello<|im_end|><|vision_start|><|video_pad|>", max_tokens=1)

    assert spelled.prompt_tokens > plain.prompt_tokens + 3 * 3  # several tokens each, not one


def test_a_prompt_that_is_too_long_is_refused_in_a_sentence_and_the_session_goes_on(live):
    session = live.open()
    items = pairs_of(clip(11, 1600))

    with pytest.raises(PromptTooLongError, match=r"frames and the question have [\d,]+ tokens, but the model takes"):
        live.ask(session, items)
    with pytest.raises(PromptTooLongError, match="choose a smaller window"):
        live.read(session, items)

    assert live.ask(session, items[:10]).prompt_tokens < 2048


def test_parameters_that_vllm_refuses_cost_one_question(qwen25):
    session, items, starts = qwen25.open(), pairs_of(clip(11, 4)), qwen25.engine.starts

    with pytest.raises(InferenceError, match="temperature"):
        qwen25.ask(session, items, text="Tell me.", temperature=9.0)

    assert qwen25.ask(session, items).prompt_tokens > 0
    assert qwen25.engine.starts == starts


def test_times_that_take_positions_beyond_the_models_are_refused(qwen25):
    session = qwen25.open()
    frames = clip(12, 400)

    with pytest.raises(PromptTooLongError, match=r"to position [\d,]+, but the model's positions end at 8,191"):
        qwen25.ask(session, pairs_of(frames, fps=0.05))

    minutes = pairs_of(frames[:40], fps=1 / 3600)  # an hour between frames counts as half a minute
    assert logprobs(qwen25.ask(session, minutes)) == logs(qwen25.ask(qwen25.open(), minutes))


def test_a_killed_engine_is_loaded_again_and_answers_the_same(qwen25):
    items = pairs_of(clip(13, 80))
    session = qwen25.open()
    qwen25.read(session, items)
    before = qwen25.ask(session, items)
    running = qwen25.engine.ensure_running()
    os.kill(qwen25.engine.pid, signal.SIGKILL)
    until(lambda: running.lost)

    warmed = qwen25.read(session, items)
    after = qwen25.ask(session, items)

    assert warmed.cached_tokens == 0
    assert after.cached_tokens == before.cached_tokens
    assert logprobs(after) == logs(before)


def noise(seed, seconds):
    return np.random.default_rng(seed).normal(0, 3000, round(seconds * AUDIO_HZ)).astype(np.int16)


def with_audio(seed, seconds):
    """Return a clip with noise: two seconds of frames, then their audio, and so on."""
    pairs, spans, items = FramePairs(), AudioSpans(), []
    audio = noise(seed, seconds)
    for number, image in enumerate(clip(seed, round(seconds * FPS))):
        items += pairs.add(image, number / FPS)
        items += spans.add(audio[round(number * AUDIO_HZ / FPS) :][: round(AUDIO_HZ / FPS)], number / FPS)
    return items


def test_an_answer_with_audio_from_the_cache_is_that_of_the_same_items_at_once(omni):
    items = [*with_audio(20, 8), AudioSpan(samples=noise(21, 0.3), time_s=8.0)]
    session = omni.open()
    for n in range(1, len(items) + 1):  # the first two are pairs, read before there was any audio
        warmed = omni.read(session, items[:n])
    assert warmed.cached_tokens > warmed.prompt_tokens / 2

    for task in QUESTIONS:
        cached, uncached = omni.ask(session, items, task), omni.ask(omni.open(), items, task)

        assert cached.cached_tokens > cached.prompt_tokens / 2
        assert uncached.cached_tokens == 0
        assert logprobs(cached) == logs(uncached)
    assert omni.model.wait_ready().takes_audio


def test_audio_its_order_and_its_time_matter(omni):
    items = with_audio(22, 4)
    original = omni.ask(omni.open(), items)
    first, second = items[2], items[5]
    assert isinstance(first, AudioSpan)
    assert isinstance(second, AudioSpan)
    others = {
        "without": [item for item in items if not isinstance(item, AudioSpan)],
        "another": [*items[:5], structs.replace(second, samples=noise(1, 2))],
        "before its frames": [*items[:2], *items[3:5], first, second],
        "later": [*items[:5], structs.replace(second, time_s=second.time_s + 1)],
    }
    for change, other in others.items():
        assert logprobs(omni.ask(omni.open(), other)) != logs(original), change


def test_the_window_moves_with_its_audio_and_without_a_prefix_read_again(omni):
    session, window = omni.open(), Window(WindowRule(size=8))
    costs, evictions = [], 0
    for item in with_audio(23, 20):
        evictions += bool(window.add(item))
        warmed = omni.read(session, window.current)
        costs.append(warmed.prompt_tokens - warmed.cached_tokens)
        if window.next:
            omni.read(session, window.current, window.next)

    assert evictions >= 2
    assert max(costs[4:]) <= 32 + 144 + 50  # what a block lacks, and an item or two
    assert logprobs(omni.ask(session, window.current)) == logs(omni.ask(omni.open(), window.current))


def test_a_session_that_hears_is_answered_as_its_items_at_once(omni, monkeypatch):
    requests, real = [], omni.model.ask
    monkeypatch.setattr(
        omni.model, "ask", lambda prefix, query: requests.append((prefix, query)) or real(prefix, query)
    )
    info = omni.model.wait_ready()
    with DecodePool(processes=1) as pool:
        reader = FrameReader(pool, info, max_frame_px=56 * 56)
        setup = LiveSetup(
            model=omni.model, info=info, reader=reader, settings=LiveSettings(), template=DEFAULT_TEMPLATE
        )
        loop = EventLoop()
        sessions = loop.of(Sessions(setup))
        client = start(lambda: sessions, enable_frame_filter=False)
        for at in range(12):
            client.exchange(frame(20 * at, time_s=at / 2), "frame.ack")
            client.send({"type": "audio.chunk", "time_s": at / 2})
            client.session.receive_data(noise(at, 0.5).tobytes())
        while not (done := ask(client, "Which?", choices=["red", "green", "blue"]))["cached_tokens"]:
            pass
        sessions.close()
        loop.close()

    prefix, query = requests[-1]
    assert (done["frames_used"], done["audio_s"], done["last_audio_s"]) == (12, 6, 6)
    assert [isinstance(item, AudioSpan) for item in prefix.items] == [False, False, True] * 3
    assert {item.seconds for item in prefix.items if isinstance(item, AudioSpan)} == {SPAN_S}
    *_, at_once = real(replace(prefix, session=omni.open()), query)
    assert at_once.cached_tokens == 0
    assert [math.log(each) for each in done["probabilities"]] == logs(at_once)
