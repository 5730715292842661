"""Questions about clips of moving shapes, whose answers are known, and what scripts are asked."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from benchmarks.peers.cases import FRAMES, QuestionCase
from benchmarks.peers.scripts.job import QuestionJob
from flows.run.spec import make_spec
from tasks.demo.clips import MANIFEST_NAME, make_demo
from tasks.model.engine.tuning import vllm_arguments
from tasks.model.engine.vllm_backend import engine_config
from tasks.model.identity import TINY_MODEL, read_model_card
from tasks.model.prompts.prompt import render_question

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks.peers.measure import Bench
    from infra.settings import Settings
    from reelabel.sources.object_store import ObjectStore

_SEED = 26
_QUESTIONS_PER_CLIP = 3


class ShapeQuestions:
    """Clips on the store, a manifest in a folder, and an engine's settings."""

    def __init__(self, questions: int, folder: Path, objects: ObjectStore, settings: Settings) -> None:
        """Make clips and store them.

        Args:
            questions: How many, at least; three on each clip.
            folder: Folder that keeps the clips.
            objects: The store.
            settings: Settings of running services.
        """
        clips = -(-questions // _QUESTIONS_PER_CLIP)  # all questions about the last one, too
        root_uri = f"{settings.store.uri}/peers/shapes"
        self._folder = folder / f"shapes-{clips}"
        rows = make_demo(self._folder, seed=_SEED, clips=clips, uri_prefix=root_uri).to_dicts()
        for path in sorted(self._folder.glob("clip-*")):
            objects.replace(f"{root_uri}/{path.name}", path.read_bytes())
        # In float32, answers do not depend on the batch in which they are computed.
        model = settings.model.model_copy(update={"name": str(TINY_MODEL), "dtype": "float32"})
        self.settings = settings.model_copy(update={"model": model})
        self._card = read_model_card(str(TINY_MODEL))
        self.case = QuestionCase(
            name=f"{len(rows)} questions about {clips} clips", jobs={row["job_id"]: row for row in rows}
        )

    def ask(self, bench: Bench) -> Callable[[str], QuestionJob]:
        """Return what makes a script's job, given its folder."""
        template = make_spec(self._card, self.settings).template
        rows = [
            {
                "job_id": row["job_id"],
                "uri": row["video_uri"],
                "text": render_question(template, prompt=row["prompt"], choices=row["choices"]),
                "choices": row["choices"],
            }
            for row in self.case.jobs.values()
        ]
        engine = vllm_arguments(engine_config(self._card, self.settings))
        return partial(_job, rows, str(self._folder / MANIFEST_NAME), engine, bench)


def _job(
    rows: list[dict[str, object]], manifest: str, engine: dict[str, object], bench: Bench, folder: str
) -> QuestionJob:
    return QuestionJob(rows=rows, manifest=manifest, engine=engine, frames=FRAMES, folder=folder, **bench.reach())
