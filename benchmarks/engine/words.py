"""Compares answers in words of our engine with `LLM.generate` on the same prompts."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.cores import Cores, CpuUtilization
from benchmarks.engine.noise import noise_file, noise_video, words_question
from benchmarks.harness import Column, Table, Target
from benchmarks.models import engine_config
from benchmarks.pipeline.contender import Isolated, Timing, measure
from reelabel_engine.environment import engine_environment
from reelabel_engine.errors import ModelError
from reelabel_engine.protocol import Batch
from tasks.domain import Answer

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.pipeline.contender import Contender
    from reelabel_engine.protocol import EngineConfig

CHOSEN, OWN = "as chosen", "vLLM's own"
TOKENS = 64
_FRAMES = 16
_LEAST = 0.9
_START_TIMEOUT_S = 900
# Our choices for answers of one token.
_OURS = ("max_num_seqs", "max_num_batched_tokens", "block_size", "compilation_config", "structured_outputs_config")
_COLUMNS = (
    Column("engine", "name"),
    Column("answers/s", "answers_per_s", ",.2f"),
    Column("of vLLM's own", "of_own", ".2fx"),
    Column("rounds", lambda row: f"{min(row['rounds']):,.2f}-{max(row['rounds']):,.2f}"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """Requests of a round, each about square frames of noise of its own."""

    config: EngineConfig
    count: int
    side_px: int

    @property
    def shape(self) -> dict[str, int]:
        return {"frames": _FRAMES, "side_px": self.side_px}

    def seeds(self, number: int) -> range:
        return range(number * self.count, (number + 1) * self.count)


@dataclass(slots=True, kw_only=True)
class LlmGenerate:
    """vLLM's `LLM.generate` with its own settings, given prompts and pixels."""

    requests: Requests
    _llm: Any = field(default=None, init=False)
    _renderer: Any = field(default=None, init=False)

    def load(self) -> None:
        from vllm import LLM  # noqa: PLC0415 - imported in its own process

        from reelabel_engine.arguments import vllm_arguments  # noqa: PLC0415
        from reelabel_engine.renderer import InputRenderer  # noqa: PLC0415

        arguments = vllm_arguments(self.requests.config)
        self._llm = LLM(**{name: value for name, value in arguments.items() if name not in _OURS})
        self._renderer = InputRenderer(self.requests.config)

    def run(self, number: int) -> Timing:
        """Answer all prompts in one call, each about a video of its own."""
        from vllm import SamplingParams  # noqa: PLC0415 - as above

        from reelabel_engine.renderer import HashedMedium  # noqa: PLC0415

        prompts = [
            self._renderer.prompt(
                words_question(TOKENS),
                [HashedMedium(frames=noise_video(seed, **self.requests.shape), hash=f"{seed}")],
            )
            for seed in self.requests.seeds(number)
        ]
        parameters, began_s = SamplingParams(max_tokens=TOKENS, temperature=0), time.time()
        outputs = self._llm.generate(prompts, parameters, use_tqdm=False)
        return Timing(jobs=len(outputs), began_s=began_s, ended_s=time.time())

    def close(self) -> None:
        self._llm = None


@dataclass(slots=True, kw_only=True)
class OurEngine:
    """Our engine's process, given frame files."""

    requests: Requests
    log_path: Path
    _engine: Any = field(default=None, init=False)

    def load(self) -> None:
        from tasks.model.engine.process import EngineProcess  # noqa: PLC0415 - not in the engine's own environment

        self._engine = EngineProcess(self.requests.config, log_path=self.log_path, start_timeout_s=_START_TIMEOUT_S)
        self._engine.start()
        self._engine.wait_ready()

    def run(self, number: int) -> Timing:
        """Answer all questions in several batches at a time, as a run does, each about a video of its own."""
        from flows.shard.infer import MAX_CONCURRENT_GROUPS, MAX_PROMPTS  # noqa: PLC0415 - as above

        files = {f"{seed}": noise_file(seed, **self.requests.shape) for seed in self.requests.seeds(number)}
        asked = tuple(words_question(TOKENS, video_id=name) for name in files)
        whole = Batch(frame_files=files, questions=asked)
        batches = [whole.only(asked[start : start + MAX_PROMPTS]) for start in range(0, len(asked), MAX_PROMPTS)]
        began_s = time.time()
        with ThreadPoolExecutor(MAX_CONCURRENT_GROUPS) as threads:
            replies = list(chain.from_iterable(threads.map(self._engine.answer, batches)))
        if not all(isinstance(reply, Answer) and reply.words for reply in replies):
            raise ModelError("The engine rejects the questions.")
        return Timing(jobs=len(replies), began_s=began_s, ended_s=time.time())

    def close(self) -> None:
        self._engine.close()


def compare(model: str, folder: Path, *, requests: int, rounds: int) -> tuple[list[Table], list[Target]]:
    """Measure both in turns; both prepare prompts meanwhile."""
    config, side_px = engine_config(model, folder)
    asked = Requests(config=config, count=requests, side_px=side_px)
    own = LlmGenerate(requests=asked)
    contenders: dict[str, Contender] = {
        OWN: Isolated(own, environment=engine_environment(config), cores=frozenset(), logs=folder / "logs"),
        CHOSEN: OurEngine(requests=asked, log_path=folder / "logs" / "engine.log"),
    }
    results = measure(contenders, rounds=1 + rounds, utilization=CpuUtilization(Cores()), on_progress=lambda _: None)
    rates = {name: [each.jobs_per_s for each in result.timings[1:]] for name, result in results.items()}  # one warms up
    of_own = median(our / their for our, their in zip(rates[CHOSEN], rates[OWN], strict=True))
    shares = {OWN: 1.0, CHOSEN: of_own}
    rows = [
        {"name": name, "answers_per_s": median(each), "of_own": shares[name], "rounds": each}
        for name, each in rates.items()
    ]
    title = f"{model}, {asked.count} answers of {TOKENS} tokens, {rounds} rounds"
    return [Table(title, rows, _COLUMNS)], [Target(f"answers in words / {OWN}", of_own, least=_LEAST)]
