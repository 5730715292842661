"""Every bomb, and a hundred files with random timestamps, from the decoder to the real engine, which never dies."""

import re
from collections import Counter
from functools import cache

import pytest

from reelabel.errors import VideoError
from reelabel.options import Limits
from reelabel.pool.decode_pool import DecodePool
from reelabel.sampling.options import Sampling
from reelabel_engine.protocol import Batch, EngineConfig
from tasks.domain import Answer
from tasks.model.engine.process import EngineProcess
from tasks.model.engine.recovery import RecoveringEngine
from tasks.model.identity import TINY_MODEL
from tests.bombs import BOMBS
from tests.frame_files import frame_file_of
from tests.model.factories import frame_file, question
from tests.timestamps import fuzzed_timestamps

# One worker: the tests share an engine.
pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

ANSWERED = "answered"
FUZZED = 100
FOREVER = Limits(max_duration_s=float("inf"))
LAST_POSITION = 4 * 2048 - 1  # of vLLM's table for the tiny model


@pytest.fixture(scope="module")
def process(tmp_path_factory):
    log_path = tmp_path_factory.mktemp("engine") / "engine.log"
    config = EngineConfig(model=str(TINY_MODEL), dtype="float32")
    return EngineProcess(config, log_path=log_path, start_timeout_s=240)


@pytest.fixture(scope="module")
def engine(process):
    with RecoveringEngine(process) as engine:
        engine.wait_ready()
        yield engine


@pytest.fixture(scope="module")
def extract(tmp_path_factory):
    """Extract a video's frame file, or the code of its failure."""
    path = tmp_path_factory.mktemp("videos") / "video"
    with DecodePool(processes=1, timeout_s=4, memory_mib=2048) as pool:

        def extract(data, **options):
            path.write_bytes(data)
            try:
                frames = pool.extract(path, **options)
            except VideoError as error:
                return error.code
            return frame_file_of(frames, source_uri="v", fingerprint="e", sampling=options["sampling"])

        yield extract


@cache
def fuzzed():
    return {f"random timestamps {seed}": fuzzed_timestamps(seed) for seed in range(FUZZED)}


def outcomes(engine, videos):
    """Ask about each video that gave a frame file; the others have failed already."""
    files = {name: data for name, data in videos.items() if isinstance(data, bytes)}
    batch = Batch(frame_files=files, questions=tuple(question(video_id=name) for name in files))
    replies = zip(files, engine.answer(batch), strict=True)
    return videos | {name: ANSWERED if isinstance(reply, Answer) else reply.code for name, reply in replies}


def test_bombs_and_random_timestamps_are_refused_with_a_reason_and_kill_no_engine(engine, process, extract):
    videos = {name: make() for name, make in BOMBS.items()} | fuzzed()

    ends = outcomes(
        engine, {name: extract(data, sampling=Sampling(), limits=Limits()) for name, data in videos.items()}
    )

    assert process.starts == 1
    assert ends["frames that last for days"] == "video_too_large"
    assert {ANSWERED, "video_too_large"} <= set(ends.values())
    assert "inference_failed" not in ends.values(), ends


@pytest.mark.parametrize("sampler", ["keyframes", "fps"])
def test_the_engine_is_safe_even_without_the_limit_on_durations(engine, process, extract, sampler):
    videos = {name: BOMBS[name]() for name in BOMBS if "day" in name or "year" in name or "month" in name} | fuzzed()

    ends = outcomes(
        engine,
        {name: extract(data, sampling=Sampling(sampler=sampler), limits=FOREVER) for name, data in videos.items()},
    )

    assert process.starts == 1
    assert ends["frames that last for days"] == "prompt_too_long"
    assert Counter(ends.values())["prompt_too_long"] > 10
    assert "inference_failed" not in ends.values(), ends


def test_a_prompt_may_reach_the_last_position_of_the_model_and_not_the_next(engine, process):
    def ask(every_s):
        batch = Batch(frame_files={"v": frame_file(1, every_s=every_s)}, questions=(question(),))
        [reply] = engine.answer(batch)
        return reply

    kept_s, refused_s = 1.0, 1e9
    while refused_s - kept_s > 1 / 64:
        middle_s = (kept_s + refused_s) / 2
        kept_s, refused_s = (middle_s, refused_s) if isinstance(ask(middle_s), Answer) else (kept_s, middle_s)
    refusal = ask(refused_s)

    assert process.starts == 1
    assert isinstance(ask(kept_s), Answer)
    assert refusal.code == "prompt_too_long"
    [position] = re.findall(
        r"take the prompt to position ([\d,]+), but the model's positions end at 8,191;", refusal.message
    )
    assert LAST_POSITION < int(position.replace(",", "")) < LAST_POSITION + 10
