"""Questions about clips of moving shapes, each answered by one token."""

from __future__ import annotations

import json
import pickle
import subprocess
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from tokenizers import Tokenizer

from benchmarks.media.clips import made_once
from benchmarks.models import model_folder
from benchmarks.peers.frames import FRAMES
from benchmarks.peers.measure import Case, count_faults
from benchmarks.peers.scripts.job import QuestionJob
from reelabel.sources.object_store import ObjectStore
from reelabel.sources.s3 import sign_url
from reelabel_engine.environment import engine_environment, find_python
from reelabel_engine.protocol import EngineConfig
from tasks.demo.clips import FPS, Encoding, write_clip
from tasks.demo.shapes import QUESTIONS, draw_shape, render_frames
from tasks.domain.spec import DEFAULT_TEMPLATE
from tasks.model.prompts.prompt import render_question

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.peers.measure import Bench, Rows
    from infra.settings import StoreSettings
    from tasks.demo.shapes import MovingShape

_SEED = 60_000  # distinct from those of training, demo and other benchmarks
LENGTH_S = 20
_SCALE = 4  # pixels of a clip for each of a scene
_LETTERS = "ABCD"
_PARTS = 8  # files of a table
_SIGNED_S = 24 * 3600
_DTYPE = "float32"  # so that an answer does not depend on those that are computed with it
_TUNE = """
import json, pickle, sys
from reelabel_engine.arguments import vllm_arguments

config, names = pickle.load(sys.stdin.buffer)
arguments = vllm_arguments(config)
print(json.dumps({name: arguments[name] for name in names if name in arguments}))
"""
_TUNED = (
    "block_size",
    "compilation_config",
    "enforce_eager",
    "gpu_memory_utilization",
    "kv_cache_memory_bytes",
    "max_model_len",
    "max_num_batched_tokens",
    "max_num_seqs",
)
# What the tiny model answers as well as the demo's own questions; the last one is then asked in other words.
_ASKED = (
    ("colour", "Which colour is the shape?"),
    ("direction", "Which direction does it move?"),
    ("shape", "What shape is it?"),
    ("colour", "What colour is the shape?"),
    ("shape", "Which shape is it?"),
    ("colour", "Which colour appears first?"),
    ("colour", "Which colour does the shape have?"),
    ("direction", "Where does it move?"),
)
_IN_OTHER_WORDS = "What direction does it move?"
QUESTIONS_PER_VIDEO = len(_ASKED)


@dataclass(frozen=True, kw_only=True)
class QuestionCase(Case):
    """Questions, eight about each video.

    Attributes:
        is_changed: Whether one of the questions is asked in other words than before.
        truths: The letter of the true answer, by job; empty where the model knows nothing.
    """

    videos: int
    is_changed: bool = False
    truths: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    kind = "questions"
    state = "asked"

    def faults(self, rows: Rows) -> dict[str, int]:
        return count_faults(rows, self.videos * QUESTIONS_PER_VIDEO)

    def figures(self, rows: Rows) -> dict[str, int]:
        asked = {"asked": sum(row["is_new"] for row in rows)}
        if not self.truths:
            return asked
        return asked | {"right": sum(row["letter"] == self.truths.get(row["id"]) for row in rows)}


class QuestionVideos:
    """Makes and uploads clips once, and writes tables of questions about them; `folder` keeps clips and models.

    All questions are asked, and then all again, in part in other words; or `dying`, each tool is killed at half of the
    answers, and continues.
    """

    def __init__(self, model: str, questions: int, folder: Path, store: StoreSettings, *, dying: bool) -> None:
        self._store = store
        self._config = EngineConfig(model=str(model_folder(model, folder).resolve()), dtype=_DTYPE)
        self._truths = upload_clips(folder, questions // QUESTIONS_PER_VIDEO, store)
        ours = engine_environment(self._config)  # in which every engine runs, too
        wanted = ("TORCHDYNAMO_DISABLE", "VLLM_LOGGING_LEVEL", "VLLM_NO_USAGE_STATS", "PYTHONPATH")
        self.environment = {name: ours[name] for name in wanted if name in ours}
        rows = self._rows(is_changed=False)
        known = {row["job_id"]: row["letter"] for row in rows} if model == "tiny" else {}
        of = partial(QuestionCase, videos=len(self._truths), truths=known)
        whole = f"{len(rows)} questions"
        if dying:
            killed = of(name="killed", is_race=False, kill_at_rows=len(rows) // 2)
            self.sequences = [[killed, replace(killed, name=f"{whole}, continued after kill -9", kill_at_rows=0)]]
        else:
            again = of(name=f"again, 1 in {QUESTIONS_PER_VIDEO} reworded", is_changed=True)
            self.sequences = [[of(name=f"{whole}, {model}"), again]]

    def job(self, case: QuestionCase, bench: Bench, folder: str) -> QuestionJob:
        table = Path(folder) / ("questions-again" if case.is_changed else "questions")
        table.mkdir(exist_ok=True)
        rows = self._rows(is_changed=case.is_changed, endpoint=bench.relay.url)
        size = -(-len(rows) // _PARTS)
        for part in range(_PARTS):
            frame = pl.DataFrame(rows[part * size : (part + 1) * size]).drop("letter")
            frame.write_parquet(table / f"{part}.parquet")
        engine = _tuned(self._config) | {
            "dtype": _DTYPE,
            "enable_prefix_caching": True,
            "limit_mm_per_prompt": {"image": 0, "video": 1},
            "seed": 0,
        }
        return QuestionJob(
            table=str(table),
            resumable=not case.is_race,
            frames=FRAMES,
            model=self._config.model,
            engine=engine,
            sampling={"max_tokens": 1, "temperature": 0.0, "allowed_token_ids": _letter_tokens(self._config.model)},
            python=find_python().path,
            folder=folder,
            **bench.reach(),
        )

    def _rows(self, *, is_changed: bool, endpoint: str = "") -> list[dict[str, Any]]:
        """Return the questions in the order of their videos."""
        store = replace(self._store, endpoint_url=endpoint) if endpoint else None
        rows = []
        for uri, truths in self._truths.items():
            url = sign_url(store, uri, valid_s=_SIGNED_S) if store else ""
            for number, (task, words) in enumerate(_ASKED):
                prompt = _IN_OTHER_WORDS if is_changed and number == len(_ASKED) - 1 else words
                choices = QUESTIONS[task][1]
                rows.append(
                    {
                        "job_id": f"{uri.rpartition('/')[2].partition('.')[0]}-{number}",
                        "video_uri": uri,
                        "prompt": prompt,
                        "choices": list(choices),
                        "url": url,
                        "text": render_question(DEFAULT_TEMPLATE, prompt=prompt, choices=choices),
                        "letter": _LETTERS[choices.index(truths[task])],
                    }
                )
        return rows


def upload_clips(folder: Path, count: int, store: StoreSettings) -> dict[str, dict[str, str]]:
    """Make clips of one moving shape, with a keyframe a second; return the true answers by task, by their URIs."""
    objects, truths = ObjectStore(store), {}
    for number in range(count):
        rng = np.random.default_rng(_SEED + number)
        shape = draw_shape(rng)
        path = made_once(folder / "shapes" / f"{number:04d}.mp4", partial(_write, shape, rng))
        uri = f"{store.uri}/peers/shapes/{path.name}"
        objects.replace(uri, path.read_bytes())
        truths[uri] = {task: shape.truth(task) for task in QUESTIONS}
    return truths


def _write(shape: MovingShape, rng: np.random.Generator, path: Path) -> None:
    scenes = render_frames(shape, np.linspace(0, 1, LENGTH_S * FPS), rng)
    frames = scenes.repeat(_SCALE, axis=1).repeat(_SCALE, axis=2)
    write_clip(path, frames, Encoding(container="mp4", codec="libx264", gop=FPS))


def _tuned(config: EngineConfig) -> dict[str, Any]:
    """Return the arguments of vLLM that an engine would choose."""
    done = subprocess.run(  # noqa: S603 - our own code
        [find_python().path, "-P", "-c", _TUNE],
        input=pickle.dumps((config, _TUNED)),
        env=engine_environment(config),
        capture_output=True,
        check=True,
    )
    arguments: dict[str, Any] = json.loads(done.stdout)
    return arguments


def _letter_tokens(model: str) -> list[int]:
    tokenizer = Tokenizer.from_file(f"{model}/tokenizer.json")
    return [token for letter in _LETTERS if (token := tokenizer.token_to_id(letter)) is not None]
