"""The ways of `bench pipeline`, on one set of clips: all from videos, or from less, to the same answers."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import partial
from math import isqrt
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from benchmarks.engine import CHOSEN, Requests, Trial, ceiling
from benchmarks.pipeline.busy import CoresBusy
from benchmarks.pipeline.chat import Chatting
from benchmarks.pipeline.extraction import Extracting, Extraction
from benchmarks.pipeline.feed import Feeding
from benchmarks.pipeline.remote import Remote
from benchmarks.pipeline.rounds import measure
from benchmarks.pipeline.verdict import CEILING, COLD, EXTRACTION, KEYFRAMES, UNIFORM, WARM, judge
from benchmarks.pipeline.workload import WARM_UP_CLIPS, Workload, make_jobs, write_manifest
from flows.engine_config import engine_config
from flows.measured import FlowRun
from flows.spec import make_spec
from infra.objects import ObjectStore
from infra.s3 import sign_url
from tasks.model.identity import read_model_card
from tasks.model.process import engine_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from benchmarks.pipeline.cores import Cores
    from benchmarks.pipeline.rounds import Row
    from benchmarks.pipeline.timing import Way
    from benchmarks.pipeline.verdict import Verdict
    from infra.settings import Settings

# `bench engine` tries more; these differ the most.
_SWEEP = (
    Trial(name=CHOSEN),
    Trial(name="64 prompts in steps of 8,192 tokens", arguments={"max_num_batched_tokens": 8192, "max_num_seqs": 64}),
    Trial(name="one prompt a step", arguments={"max_num_batched_tokens": 8192, "max_num_seqs": 1}),
)
_SWEEP_REQUESTS = 32
_SHARD_JOBS = 50  # the fewest, where there are few jobs: a run is made of many shards
_MANY_JOBS = 500
_SIGNED_S = 24 * 3600
_MOST_CHATS = 400  # more take the same time each, and those with vLLM's own loader a long one


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One model's part of the report.

    Attributes:
        ceiling_settings: Those of the engine with which the ceiling was the highest.
    """

    name: str
    jobs: int
    videos: int
    ceiling_settings: str
    rows: list[Row] = field(repr=False)
    verdicts: list[Verdict] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What all models' ways share.

    Attributes:
        settings: Of services that run.
        clips: Videos, each a file; the first ones are for warming up.
        questions: Asked about each of them.
        rounds: How often each way is taken.
    """

    settings: Settings
    cores: Cores
    clips: Sequence[Path] = field(repr=False)
    questions: int
    rounds: int

    def measure(self, name: str, model: Path, *, warm_share: float, say: Callable[[str], None]) -> Measured:
        """Take every way with one model.

        Args:
            name: The model's, for S3 and the database.
            model: Its folder.
            warm_share: Of the ceiling, what a warm cache should reach.
            say: Told what is going on.
        """
        settings = self._settings_of(model)
        workload = self._workload(name, settings)
        root_uri = f"{settings.store.uri}/{name}"
        self._upload(workload, settings, root_uri)
        best = self._best(workload, say)
        with CoresBusy(self.cores) as busy:
            ways = self._ways(workload, settings, root_uri, best)
            rows = measure(ways, rounds=self.rounds, busy=busy, say=say)
        return Measured(
            name=name,
            jobs=len(workload.jobs),
            videos=len(workload.videos),
            ceiling_settings=best.name,
            rows=rows,
            verdicts=judge({row.way: row for row in rows}, jobs_per_video=self.questions, warm_share=warm_share),
        )

    def _settings_of(self, model: Path) -> Settings:
        # In float32, answers do not depend on what they were computed beside.
        chosen = self.settings.model.model_copy(update={"name": str(model), "dtype": "float32"})
        jobs = self.questions * (len(self.clips) - WARM_UP_CLIPS)
        shard = self.settings.shard
        if jobs < _MANY_JOBS:
            shard = shard.model_copy(update={"target_jobs": _SHARD_JOBS})
        return self.settings.model_copy(update={"model": chosen, "shard": shard})

    def _workload(self, name: str, settings: Settings) -> Workload:
        card = read_model_card(settings.model.name)
        return Workload(
            name=name,
            engine=engine_config(card, settings),
            spec=make_spec(card, settings),
            jobs=make_jobs(self.clips[WARM_UP_CLIPS:], questions_per_video=self.questions),
            warm_up=make_jobs(self.clips[:WARM_UP_CLIPS], questions_per_video=1),
        )

    def _upload(self, workload: Workload, settings: Settings, root_uri: str) -> None:
        objects = ObjectStore(settings.store)
        for path in map(Path, workload.videos):
            objects.replace(f"{root_uri}/{path.name}", path.read_bytes())
        with TemporaryDirectory(prefix="reelabel-") as folder:
            manifest = Path(folder) / "manifest.parquet"
            write_manifest(workload.jobs, manifest, root_uri=root_uri)
            objects.replace(f"{root_uri}/manifest.parquet", manifest.read_bytes())

    def _best(self, workload: Workload, say: Callable[[str], None]) -> Trial:
        """Find the settings with which the engine alone is the fastest."""
        requests = Requests(
            config=workload.engine,
            count=min(_SWEEP_REQUESTS, len(workload.jobs)),
            side_px=isqrt(workload.engine.max_pixels),
            rounds=2,
        )
        cores = tuple(sorted(self.cores.engine))
        swept = ceiling(requests, _SWEEP, cores=cores, on_trial=lambda trial: say(f"ceiling: trying {trial.name}"))
        return swept.best.trial

    def _ways(self, workload: Workload, settings: Settings, root_uri: str, best: Trial) -> dict[str, Way]:
        """Lay the ways out in the order of a round: the cold one leaves its frames for the warm one."""
        return {
            CEILING: self._feeding(workload, best),
            EXTRACTION: self._extracting(workload, settings, root_uri),
            COLD: self._flow(workload, settings, root_uri, "cold"),
            WARM: self._flow(workload, settings, root_uri, "warm"),
            UNIFORM: self._chatting(workload, settings, root_uri, "opencv"),
            KEYFRAMES: self._chatting(workload, settings, root_uri, "pyav_keyframes"),
        }

    def _feeding(self, workload: Workload, best: Trial) -> Way:
        environment = engine_environment(workload.engine) | best.environment
        return self._remote(Feeding(workload=workload, arguments=best.arguments), environment, self.cores.engine)

    def _extracting(self, workload: Workload, settings: Settings, root_uri: str) -> Way:
        extraction = Extraction(
            sampling=workload.spec.sampling,
            store=settings.store,
            root_uri=f"{root_uri}/extracted",
            processes=settings.extract.processes,
        )
        videos = [f"{root_uri}/{Path(path).name}" for path in workload.videos]
        return self._remote(Extracting(extraction=extraction, videos=videos), os.environ, self.cores.host)

    def _flow(self, workload: Workload, settings: Settings, root_uri: str, name: str) -> Way:
        return FlowRun(
            workload=workload,
            settings=settings,
            manifest_uri=f"{root_uri}/manifest.parquet",
            cache_uri=f"{root_uri}/cache",
            name=f"{workload.name} {name}",
            cores=self.cores,
        )

    def _chatting(self, workload: Workload, settings: Settings, root_uri: str, loader: str) -> Way:
        apart = self.cores.engine_variables | {"VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
        environment = engine_environment(workload.engine) | apart
        sign = partial(sign_url, settings.store, valid_s=_SIGNED_S)
        way = Chatting(
            workload=workload,
            loader=loader,
            cores=self.cores,
            urls={path: sign(f"{root_uri}/{Path(path).name}") for path in workload.videos},
            most_jobs=_MOST_CHATS,
        )
        return self._remote(way, environment, self.cores.host)

    def _remote(self, way: Way, environment: Mapping[str, str], cores: frozenset[int]) -> Way:
        log_path = self.settings.home / "logs" / f"{type(way).__name__.lower()}.log"
        return Remote(way, environment=environment, cores=cores, log_path=log_path)
