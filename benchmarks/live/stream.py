"""Provides a camera's frames as pairs, and the engine that prefills them."""

from __future__ import annotations

import time
from contextlib import contextmanager
from itertools import count, islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from benchmarks.harness import time_ms
from benchmarks.models import engine_config
from reelabel_engine.protocol import LiveDone, LiveQuery
from tasks.live.model import Prefix
from tasks.live.window import FramePairs
from tasks.model.engine.live.model import EngineLiveModel
from tasks.model.engine.process import EngineProcess
from tasks.model.identity import read_model_info

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from reelabel_engine.live_items import FramePair, Item
    from reelabel_engine.protocol import EngineConfig

FPS = 2.0
_START_TIMEOUT_S = 900
_BLOCK_TOKENS = 32  # of the KV cache on a CPU; a GPU's have fewer
_FRAME_CHOICES = ("red", "green", "blue", "yellow")
QUERY = LiveQuery(text="Which colour is the shape?\nA. red\nB. green\nC. blue\nD. yellow", choices=_FRAME_CHOICES)


class LiveSetup(NamedTuple):
    """A model, and the side of the square frames that it is shown, which its processor does not scale."""

    config: EngineConfig
    side_px: int


def find_setup(name: str, folder: Path) -> LiveSetup:
    """Return a model by its name, `tiny` or `100m`; its folder is written if it is missing."""
    options = {"dtype": "float32"} if name == "tiny" else {}
    return LiveSetup(*engine_config(name, folder, live_sessions=2, **options))


def camera(setup: LiveSetup, *, seed: int) -> Iterator[FramePair]:
    """Return pairs of frames of noise without end; every pair is new to every cache."""
    rng = np.random.default_rng(seed)
    noise = (rng.integers(0, 256, (setup.side_px, setup.side_px, 3), np.uint8) for _ in count())
    return in_pairs(noise, fps=FPS)


def in_pairs(frames: Iterable[npt.NDArray[np.uint8]], *, fps: float) -> Iterator[FramePair]:
    """Yield frames in pairs, as a session does."""
    pairs = FramePairs()
    for number, image in enumerate(frames):
        yield from pairs.add(image, number / fps)


def pairs_of(setup: LiveSetup, frames: int, *, seed: int) -> list[FramePair]:
    return list(islice(camera(setup, seed=seed), frames // 2))


def system_prompt_of(number: int, rounds: int) -> str:
    """Return the system prompt of a round: each round's history ends elsewhere in a block of the KV cache.

    What does not fill its block is computed again with the question, from none to nearly a block's tokens. A length of
    history alone would decide by chance how many.
    """
    return " ".join("a" * (1 + number * _BLOCK_TOKENS // rounds))  # a token each


class Answered(NamedTuple):
    """The answer to a question with choices, the index of the most probable one, and how long it took."""

    prompt_tokens: int
    cached_tokens: int
    probabilities: tuple[float, ...]
    choice: int
    total_ms: float


class OpenLive:
    def __init__(self, setup: LiveSetup, process: EngineProcess) -> None:
        self.process = process
        self.model = EngineLiveModel([process], read_model_info(setup.config.model), max_frame_px=setup.side_px**2)
        self._sessions = count()

    def open(self) -> str:
        name = f"session {next(self._sessions)}"
        self.model.open(name)
        return name

    def read(self, session: str, *prefixes: Sequence[Item], system_prompt: str | None = None) -> float:
        """Have the current prefix read, and the next one if there is one; return how many milliseconds that took."""
        goal = [Prefix(session=session, items=tuple(items), system_prompt=system_prompt) for items in prefixes]
        return time_ms(lambda: [*iter(lambda: self.model.prefill(goal), None)])

    def ask(
        self, session: str, items: Sequence[Item], query: LiveQuery = QUERY, *, system_prompt: str | None = None
    ) -> Answered:
        began_s = time.perf_counter()
        prefix = Prefix(session=session, items=tuple(items), system_prompt=system_prompt)
        [done] = self.model.ask(prefix, query)
        assert isinstance(done, LiveDone)
        probabilities = done.probabilities
        return Answered(
            prompt_tokens=done.prompt_tokens,
            cached_tokens=done.cached_tokens,
            probabilities=probabilities,
            choice=max(range(len(probabilities)), key=probabilities.__getitem__),
            total_ms=(time.perf_counter() - began_s) * 1e3,
        )


@contextmanager
def open_live(setup: LiveSetup, folder: Path, *, command: Sequence[str] = ()) -> Iterator[OpenLive]:
    log_path = folder / "live-engine.log"
    with EngineProcess(setup.config, log_path=log_path, start_timeout_s=_START_TIMEOUT_S, command=command) as process:
        process.wait_ready()
        yield OpenLive(setup, process)
